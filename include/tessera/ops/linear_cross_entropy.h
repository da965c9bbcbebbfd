#pragma once

#include <optional>

#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>

namespace tessera {

/// The cross-entropy of token ids under a linear layer's softmax, as in training a language model or caption decoder:
///   loss = mean over t with targets(t) != ignore_index of
///          log(sum over v of exp(hidden(t) . weight(v) + bias(v))) - hidden(t) . weight(targets(t)) - bias(targets(t))
/// hidden   [T, D]  float32, bfloat16, float16 or float64; D at least 1, T may be 0
/// weight   [V, D]  of hidden's type (any floating type under autocast), V at least 1; a token embedding if tied
/// targets  [T]     int64, in [0, V) or `ignore_index`
/// bias     [V]     any floating type; undefined: none
/// reduction        Mean (over the targets that are not ignored) or Sum
/// returns  []      float32 (float64 for float64); 0 if every target is ignored
/// An ignored row receives no gradient, and its values do not matter, even if they are NaN.
///
/// Only a tile of rows of [T, V] is in memory at a time: 16,777,216 logits on the CPU, and up to 512 MiB on a GPU, where the logits have
/// hidden's type. When a gradient is needed, the forward pass computes it
/// together with the loss, tile by tile, so that no product is computed twice; the backward pass only scales that
/// gradient. Between the two passes, this gradient takes as much memory as hidden and weight would take in float32.
/// Results are the same in every run with the same number of threads; with another number, LibTorch's products may sum
/// in another order. Sums are float32 or better; autocast affects only products on a GPU. Throws c10::Error naming the
/// tensor that does not fit. An id that is out of range is named in the error on the CPU; on a GPU it stops the stream
/// with a device-side assertion. Differentiable once.
at::Tensor linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets,
                                std::int64_t ignore_index = -100, const at::Tensor& bias = {},
                                at::Reduction::Reduction reduction = at::Reduction::Mean);

/// Does the same as linear_cross_entropy() for soft targets that are 0 for all but a few ids, such as the words of a caption (SuperCLIP) or
/// several right answers.
///   loss(t) = (sum over v of y(t, v)) log(sum over v of exp(logits(t, v))) - sum over v of y(t, v) logits(t, v)
///   logits(t, v) = hidden(t) . weight(v) + bias(v);  y(t, v) = sum over j with ids(t, j) = v of id_weights(t, j)
/// hidden, weight and bias are as above.
/// ids         [T, n]  int64 in [0, V), n at least 1; any value where the weight is 0
/// id_weights  [T, n]  any floating type, any sum; receives no gradient
/// reduction           Sum, or Mean over all T rows, where a row without weights adds 0 but is counted
/// tile                number of logits in memory at a time, rounded to whole rows (at least one); unset: as above
/// returns     []      float32 (float64 for float64)
/// A row without weights receives no gradient, and its values do not matter, even if they are NaN. Memory use, errors and everything else
/// are as above.
at::Tensor linear_soft_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& ids,
                                     const at::Tensor& id_weights, const at::Tensor& bias = {},
                                     at::Reduction::Reduction reduction = at::Reduction::Mean,
                                     std::optional<std::int64_t> tile = std::nullopt);

}  // namespace tessera
