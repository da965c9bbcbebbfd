#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera::metrics {

struct InterpretabilityScores {
  at::Tensor rank;           // [N] int64 from 1; -1: the image has no label
  std::vector<double> topk;  // share of images whose rank is at most k
};

/// STAIR's rank of the class name among all vocabulary entries by activation: best = greatest activation of the class's
/// tokens, rank = 1 + number of other entries with at least that, so ties count against the class; V + 1 for a class
/// without tokens. activations [N, V] float, labels [N] int64, class_token_ids [C, S] int64 (-1 = none).
InterpretabilityScores interpretability_ranking(const at::Tensor& activations, const at::Tensor& labels,
                                                const at::Tensor& class_token_ids,
                                                const std::vector<std::int64_t>& topk = {1, 10, 50, 100});

}  // namespace tessera::metrics
