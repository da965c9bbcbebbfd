#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/evaluation/tasks/pass.h"

namespace tessera {

/// Pairs of a right and a wrong caption of the same image. A sample's first caption forms one pair with each of its hard
/// negatives.
struct NegativePairs {
  std::vector<std::string> texts;
  std::vector<std::int64_t> image, positive, negative;  // per pair: index of its sample, indices of its captions in `texts`
  std::vector<std::string> kinds;                       // kind of each pair's negative

  explicit NegativePairs(const std::vector<EvaluationSample>& samples);
};

/// Returns the requirement that a sample has a caption and hard negatives.
Required with_negatives();

/// A function that is called with the pairs of each batch, the features of its images, and those of the pairs' texts.
using PairsBody = std::function<void(const NegativePairs& pairs, const TowerFeatures& images, const TowerFeatures& texts)>;

/// Runs a pass over samples with_negatives(), which are not joined. Returns the number of each pair's image, int64 [pairs]. The result
/// counts samples of the same image once.
at::Tensor run_over_pairs(Pass pass, TaskResult& result, const PairsBody& body);

}  // namespace tessera
