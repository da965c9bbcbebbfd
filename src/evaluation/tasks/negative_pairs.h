#pragma once

#include <string>
#include <vector>

#include "src/evaluation/tasks/pass.h"

namespace tessera {

/// Pairs of a right and a wrong caption of one picture: the first caption of each sample with each of its hard negatives.
struct NegativePairs {
  std::vector<std::string> texts;
  std::vector<std::int64_t> image, positive, negative;  // of each pair: its sample, and its captions among `texts`
  std::vector<std::string> kinds;                       // of each pair

  explicit NegativePairs(const std::vector<EvaluationSample>& samples);
};

/// A caption and hard negatives.
Required with_negatives();

}  // namespace tessera
