#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <tessera/data/loading/loader.h>
#include <tessera/data/source.h>

namespace tessera {

/// Gives a number to each image-caption pair (entry) of a source, starting with the pairs of sample 0. A sample without a
/// caption is one entry, so that the loader reads it and counts it as bad.
class CaptionEntries {
 public:
  /// Asks the source, with settings.threads threads, how many captions each sample has. Throws the source's exceptions, and UserError if
  /// the source does not answer within settings.timeout.
  CaptionEntries(const std::shared_ptr<const IndexedSource>& source, const LoaderSettings& settings);

  struct Pair {
    std::int64_t index = 0;    // index of the sample
    std::int64_t caption = 0;  // index of the caption within the sample
  };
  Pair at(std::int64_t entry) const;
  /// Returns the first entry of a sample. If `index` is the number of samples, returns the number of entries.
  std::int64_t first_of(std::int64_t index) const { return first_.at(static_cast<std::size_t>(index)); }
  std::int64_t size() const { return first_.back(); }
  /// Returns the source's components with `size` and `first` converted from samples to entries.
  std::vector<SourceComponent> counted(std::vector<SourceComponent> components) const;

 private:
  std::vector<std::int64_t> first_;  // first entry of each sample, then the number of entries
};

}  // namespace tessera
