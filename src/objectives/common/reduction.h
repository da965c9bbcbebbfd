#pragma once

#include <ATen/core/Tensor.h>

#include "src/objectives/pairs/relation.h"
#include <tessera/distributed/process_group.h>

namespace tessera {

// Functions that reduce per-token values [B, L] to one loss. The values must be 0 at padding and in absent pairs.

/// Averages the values over each row's real tokens, then over the present pairs (PairRelation::mean_of). A present pair without
/// tokens counts with a value of 0.
at::Tensor mean_over_sequences(const at::Tensor& values, const at::Tensor& mask, const PairRelation& relation,
                               const ProcessGroup& group);

/// Returns the sum of the values divided by the number of real tokens in the batch, or 0 if there are none. With several ranks, it divides
/// this rank's sum by the mean number of tokens per rank, so that the mean of the results over ranks is the mean over the global batch.
at::Tensor mean_over_tokens(const at::Tensor& values, const at::Tensor& mask, const ProcessGroup& group);

}  // namespace tessera
