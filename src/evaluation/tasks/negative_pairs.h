#pragma once

#include <string>
#include <vector>

#include "src/evaluation/tasks/pass.h"

namespace tessera {

/// Pairs of a right and a wrong caption of one image: the first caption of each sample with each of its hard negatives.
struct NegativePairs {
  std::vector<std::string> texts;
  std::vector<std::int64_t> image, positive, negative;  // per pair: the index of its sample, and those of its captions in `texts`
  std::vector<std::string> kinds;                       // per pair

  explicit NegativePairs(const std::vector<EvaluationSample>& samples);
};

/// Requires a caption and hard negatives.
Required with_negatives();

}  // namespace tessera
