#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera::metrics {

struct InterpretabilityScores {
  at::Tensor rank;           // [N] int64 from 1; -1 if the image has no label
  std::vector<double> topk;  // share of images whose rank is at most k
};

/// Returns STAIR's rank of the class name among all vocabulary entries by activation. With `best` the greatest activation of
/// the class's tokens, the rank is 1 + the number of other entries of at least `best`, so ties count against the class. A class
/// without tokens ranks V + 1. activations [N, V] float, labels [N] int64, class_token_ids [C, S] int64 (-1 is padding).
InterpretabilityScores interpretability_ranking(const at::Tensor& activations, const at::Tensor& labels,
                                                const at::Tensor& class_token_ids,
                                                const std::vector<std::int64_t>& topk = {1, 10, 50, 100});

}  // namespace tessera::metrics
