#pragma once

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

}  // namespace tessera
