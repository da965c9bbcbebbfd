#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include <tessera/distributed/process_group.h>

namespace tessera {

/// Returns the cross-entropy of each caption token given the tokens before it (teacher forcing), summed over the batch, as a float32 or
/// float64 scalar. The logits [B, L, V] are never materialized (linear_cross_entropy).
/// hidden  [B, L - 1, w], where row t predicts token t + 1
/// table   [V, w], the output matrix
/// ids     [B, L], L at least 2
/// mask    [B, L]; tokens with a false mask do not count, and their ids and rows may hold any finite values
at::Tensor caption_loss_sum(const at::Tensor& hidden, const at::Tensor& table, const at::Tensor& ids,
                            const at::Tensor& mask);

/// Turns this rank's sum from caption_loss_sum() into a loss. "mean": the mean over the predicted tokens of the global batch, 0
/// if there are none; "sum": the sum over the global batch (ProcessGroup documents how losses of ranks combine).
at::Tensor reduced_caption_loss(const at::Tensor& sum, const at::Tensor& mask, const std::string& reduction,
                                const ProcessGroup& group);

}  // namespace tessera
