#pragma once

#include <ATen/core/Tensor.h>

namespace tessera {

/// STAIR's FLOPs regularizer (eq. 6): sum over k of (mean over rows of encoding_ik)^2.
/// encoding        [N, V]  N and V at least 1; float32, bfloat16, float16 or float64
/// dense_gradient  The gradient of an entry is 2/N mean_k, in the encoding's type, and the same in every row. So autograd receives a view
///                 that repeats one row [V] and takes no other memory, and a leaf's grad() becomes dense when it is stored. With
///                 dense_gradient, all N V elements are written, so that a hook may change them in place (not for float64).
/// returns         a scalar, float32 (float64 for float64): sums are float32 or better for any type of encoding; only the means [V] are
///                 kept for the backward pass
/// Throws c10::Error naming `encoding` if its shape or type is wrong. Differentiable once (float64: any number of times).
at::Tensor flops_regularizer(const at::Tensor& encoding, bool dense_gradient = false);

/// Returns the column sums [V] of `encoding`, for a regularizer over several processes' rows. Accepts the same encodings as
/// flops_regularizer(), with the same errors. In the backward pass, each row of `encoding` gets the gradient of the sums [V], in the
/// encoding's type. Differentiable any number of times.
at::Tensor flops_column_sums(const at::Tensor& encoding);

}  // namespace tessera
