#pragma once

#include <ATen/core/Tensor.h>

#include "src/objectives/common/contrast_targets.h"
#include <tessera/distributed/process_group.h>

namespace tessera {

// Reductions of per-token values [B, L], which are 0 at padding and in absent pairs, to one loss.

/// Returns the mean over each row's real tokens, then over the present pairs (ContrastTargets::mean_of). A present pair without
/// tokens counts with a value of 0.
at::Tensor mean_over_sequences(const at::Tensor& values, const at::Tensor& mask, const ContrastTargets& targets,
                               const ProcessGroup& group);

/// Returns the sum divided by the number of real tokens in the batch; 0 if there are none. With several ranks it divides this
/// rank's sum by the mean number of tokens per rank, so that the mean over ranks is the mean over the global batch.
at::Tensor mean_over_tokens(const at::Tensor& values, const at::Tensor& mask, const ProcessGroup& group);

}  // namespace tessera
