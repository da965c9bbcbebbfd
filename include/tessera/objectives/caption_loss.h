#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include <tessera/distributed/process_group.h>

namespace tessera {

/// The cross-entropy of each caption token given those before it (teacher forcing), summed over the batch:
/// hidden [B, L - 1, w], whose row t is about token t + 1; table [V, w], the output matrix; ids and mask [B, L], L at
/// least 2. Tokens whose mask is false count nothing, and what stands there or in their rows may be anything finite.
/// Returns a scalar, float32 or float64. [B, L, V] is never held (linear_cross_entropy).
at::Tensor caption_loss_sum(const at::Tensor& hidden, const at::Tensor& table, const at::Tensor& ids,
                            const at::Tensor& mask);

/// Such a sum over this rank's captions as a loss. "mean": over the predicted tokens of the batch of all ranks, 0 if
/// there are none; "sum": over all of them (ProcessGroup says how losses of ranks combine).
at::Tensor reduced_caption_loss(const at::Tensor& sum, const at::Tensor& mask, const std::string& reduction,
                                const ProcessGroup& group);

}  // namespace tessera
