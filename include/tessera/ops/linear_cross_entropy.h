#pragma once

#include <optional>

#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>

namespace tessera {

/// The cross-entropy of a linear layer's softmax with token ids, as a language model or a caption decoder is trained:
///   loss = mean over t with targets(t) != ignore_index of
///          log(sum over v of exp(hidden(t) . weight(v) + bias(v))) - hidden(t) . weight(targets(t)) - bias(targets(t))
/// hidden   [T, D]  float32, bfloat16, float16 or float64; D at least 1, T may be 0
/// weight   [V, D]  of hidden's type (any floating type under autocast), V at least 1; a token embedding if tied
/// targets  [T]     int64, in [0, V) or `ignore_index`
/// bias     [V]     any floating type; undefined: none
/// reduction        Mean (over the targets that are not ignored) or Sum
/// returns  []      float32 (float64 for float64); 0 if every target is ignored
/// An ignored row may hold anything, NaN too, and receives no gradient.
///
/// [T, V] is never held, but a tile of its rows. Where a gradient is wanted, the forward pass makes it along with the
/// loss, tile by tile, so that no product is made twice; the backward pass scales it. Between the two it takes the memory
/// of hidden and weight once more, in float32. Results are the same in every run with one number of threads; with
/// another, LibTorch's products may sum in another order. Sums are float32 or better; autocast reaches products on a GPU
/// alone. Throws c10::Error naming the tensor that does not fit; an id that is out of range is named on the CPU, and
/// stops a GPU's stream with a device-side assertion. Differentiable once.
at::Tensor linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets,
                                std::int64_t ignore_index = -100, const at::Tensor& bias = {},
                                at::Reduction::Reduction reduction = at::Reduction::Mean);

/// The same with a soft target that is 0 but in few places: the words of a caption (SuperCLIP), several right answers.
///   loss(t) = (sum over v of y(t, v)) log(sum over v of exp(logits(t, v))) - sum over v of y(t, v) logits(t, v)
///   logits(t, v) = hidden(t) . weight(v) + bias(v);  y(t, v) = sum over j with ids(t, j) = v of id_weights(t, j)
/// hidden, weight and bias as above.
/// ids         [T, n]  int64 in [0, V), n at least 1; where the weight is 0 whatever it is
/// id_weights  [T, n]  any floating type, of any sum; takes no gradient
/// reduction           Sum, or Mean over all T rows: a row without weights adds 0 and counts
/// tile                logits that are held at a time, in whole rows of them and at least one row; nothing: 16,777,216
/// returns     []      float32 (float64 for float64)
/// A row without weights may hold anything, NaN too, and receives no gradient. Memory, errors and all else as above.
at::Tensor linear_soft_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& ids,
                                     const at::Tensor& id_weights, const at::Tensor& bias = {},
                                     at::Reduction::Reduction reduction = at::Reduction::Mean,
                                     std::optional<std::int64_t> tile = std::nullopt);

}  // namespace tessera
