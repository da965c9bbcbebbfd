#pragma once

#include <cstdint>
#include <memory>

#include "src/data/formats/concepts.h"
#include <tessera/data/loading/loader_settings.h>
#include <tessera/sample.h>

namespace tessera {

/// Chooses the samples of each epoch such that frequent entries of a list occur about `threshold` times (BalanceSettings). Thread-safe.
class ConceptBalance {
 public:
  /// Throws UserError if the file of counts cannot be read.
  ConceptBalance(const BalanceSettings& settings, std::uint64_t seed);

  /// Returns whether the epoch numbered `repeat` uses a sample. The answer is a function of (seed, repeat, index, captions). A sample whose
  /// captions contain no entry is never used.
  bool keeps(const Sample& sample, std::int64_t index, std::int64_t repeat) const;

 private:
  double threshold_;
  std::uint64_t seed_;
  ConceptCounts counts_;
  ConceptMatcher matcher_;
};

}  // namespace tessera
