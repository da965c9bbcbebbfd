#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <tessera/data/loading/loader.h>
#include <tessera/data/source.h>

namespace tessera {

/// The pairs of picture and caption that the samples of a source make, counted through: those of sample 0 first. A
/// sample without a caption is one entry, so that it is met and counted.
class CaptionEntries {
 public:
  /// Asks the source once for each sample's captions, in threads. Throws UserError as the source does, and after
  /// settings.timeout without an answer.
  CaptionEntries(const std::shared_ptr<const IndexedSource>& source, const LoaderSettings& settings);

  struct Pair {
    std::int64_t index = 0;    // of the sample
    std::int64_t caption = 0;  // of its captions
  };
  Pair at(std::int64_t entry) const;
  /// The first entry of this sample; of the sample behind the last one, the end.
  std::int64_t first_of(std::int64_t index) const { return first_.at(static_cast<std::size_t>(index)); }
  std::int64_t size() const { return first_.back(); }
  /// The components of the source, counted in entries.
  std::vector<SourceComponent> counted(std::vector<SourceComponent> components) const;

 private:
  std::vector<std::int64_t> first_;  // entry of each sample; then the end
};

}  // namespace tessera
