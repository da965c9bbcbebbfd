#pragma once

#include <ATen/core/Tensor.h>

#include "src/objectives/common/contrast_targets.h"
#include <tessera/distributed/process_group.h>

namespace tessera {

// How values [B, L] of single tokens, 0 at padding and in absent pairs, become one loss.

/// The mean over each row's real tokens, then over the pairs that are present (ContrastTargets::mean_of); a present one
/// without tokens adds 0 and counts.
at::Tensor mean_over_sequences(const at::Tensor& values, const at::Tensor& mask, const ContrastTargets& targets,
                               const ProcessGroup& group);

/// The sum over the number of real tokens in the batch; 0 if there are none. Over ranks: the own sum over the mean
/// number per rank, so that the mean of the ranks is the global batch's.
at::Tensor mean_over_tokens(const at::Tensor& values, const at::Tensor& mask, const ProcessGroup& group);

}  // namespace tessera
