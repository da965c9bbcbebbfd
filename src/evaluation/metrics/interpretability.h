#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera::metrics {

struct InterpretabilityScores {
  at::Tensor rank;           // [N] int64, ranks that start at 1; -1 if the image has no label
  std::vector<double> topk;  // for each k, the share of images whose rank is at most k
};

/// Returns STAIR's rank of the class name among all vocabulary entries, ordered by activation. The rank is the number of entries whose
/// activation is at least the greatest activation of the class's tokens. It is therefore at least 1, and ties count against the class. A
/// class without tokens has rank V + 1. activations: float [N, V]. labels: int64 [N]. class_token_ids: int64 [C, S], -1 for padding.
InterpretabilityScores interpretability_ranking(const at::Tensor& activations, const at::Tensor& labels,
                                                const at::Tensor& class_token_ids,
                                                const std::vector<std::int64_t>& topk = {1, 10, 50, 100});

}  // namespace tessera::metrics
