#pragma once

#include <ATen/core/Tensor.h>

#include <tessera/distributed/process_group.h>

namespace tessera {

/// STAIR's FLOPs regularizer (eq. 6) over the encodings of all ranks: sum over k of (mean over all rows of
/// encoding_ik)^2, the same scalar on every rank.
/// encoding  [N, V]  this rank's; N may differ between ranks, otherwise as ops/flops_regularizer.h says
/// Ranks exchange their column sums [V], and in the backward pass the gradients of those.
at::Tensor flops_regularizer(const at::Tensor& encoding, const ProcessGroup& group);

}  // namespace tessera
