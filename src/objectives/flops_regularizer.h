#pragma once

#include <ATen/core/Tensor.h>

#include <tessera/distributed/process_group.h>

namespace tessera {

/// Returns STAIR's FLOPs regularizer (eq. 6) over the encodings of all ranks: sum over k of (mean over all rows i of
/// encoding_ik)^2, the same scalar on every rank.
/// encoding  [N, V]  this rank's rows; N may differ between ranks; ops/flops_regularizer.h documents types and errors
/// Ranks exchange only their column sums [V] and, in the backward pass, the gradients of these sums.
at::Tensor flops_regularizer(const at::Tensor& encoding, const ProcessGroup& group);

}  // namespace tessera
