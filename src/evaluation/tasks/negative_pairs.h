#pragma once

#include <string>
#include <vector>

#include "src/data/loading/evaluation_reader.h"
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

}  // namespace tessera
