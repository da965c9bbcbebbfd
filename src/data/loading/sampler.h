#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <tessera/data/loading/loader.h>
#include <tessera/data/sources/mixture.h>

namespace tessera {

/// A source as the loader sees it: by itself, or as a part of a mixture.
struct SourceComponent {
  std::string label;      // empty: by itself
  std::string described;  // for messages
  std::int64_t first = 0, size = 0;
  double weight = 1.0;
  const Source* source = nullptr;
};
std::vector<SourceComponent> components_of(const Source& source);

/// One sample of an epoch.
struct SampleRef {
  std::int64_t index = 0;
  std::int64_t part = 0;
  std::int64_t repeat = 0;  // how often its part was gone through before; crops, flips and captions change with it
};

/// Places [begin, end) of an epoch. No batch reaches beyond one.
struct Segment {
  std::int64_t number = 0;  // counted over all epochs
  std::int64_t begin = 0, end = 0;
  std::int64_t part = -1;         // that all its samples are of; -1: mixed
  std::int64_t shared_begin = 0;  // counted over all shards
  std::int64_t shared_size = 0;
};

/// Which sample stands where in each epoch. Places are counted as one shard has them, from 0 in each epoch; a place
/// holds one sample, or with `accumulate` one for each source (component). Everything follows from (source, seed). All
/// epochs have the same number of places. Thread-safe.
///
/// concat      the permutation of all samples
/// weighted    of each source round(weight * size) samples, permuted together. They are the next ones of an endless row
///             of the source's permutations, so that over epochs all its samples come equally often
/// sequential  a segment for each source, with its permutation; another order of sources each epoch
/// accumulate  as many places as the largest source has samples; each component is an endless row of its source's
///             permutations
class Sampler {
 public:
  /// `parts`: those of the source, counted in what an epoch holds once each.
  Sampler(const Source& source, std::vector<SourceComponent> parts, bool shuffle, std::uint64_t seed, const RankSlice& shard);

  const std::vector<SourceComponent>& parts() const { return parts_; }
  std::int64_t components() const { return mode_ == MixtureMode::accumulate ? std::ssize(parts_) : 1; }
  std::int64_t places() const { return places_; }
  /// Over all shards.
  std::int64_t shared_places() const { return shared_places_; }

  std::vector<Segment> segments(std::int64_t epoch) const;
  Segment segment_of(const DataPosition& place) const;
  SampleRef at(const DataPosition& place, std::int64_t component);

  /// The same place counted over all shards.
  DataPosition to_shared(const DataPosition& place) const;
  /// The first own place at or behind one that is counted over all shards.
  DataPosition to_own(const DataPosition& shared) const;

 private:
  /// Entries [begin, begin + count) of an epoch's concat or weighted order are those of one part.
  struct Share {
    std::int64_t begin = 0, count = 0;
  };
  SampleRef mixed(std::int64_t epoch, std::int64_t entry);
  /// The place-th sample of the endless row of a part's permutations.
  SampleRef of_row(std::int64_t part, std::int64_t place, bool permute);
  std::int64_t permuted(std::int64_t row, std::int64_t repeat, std::int64_t size, std::int64_t place);

  const std::vector<SourceComponent> parts_;
  const MixtureMode mode_;
  const bool shuffle_;
  const std::uint64_t seed_;
  const RankSlice shard_;
  std::vector<Share> shares_;
  std::int64_t shared_places_ = 0, places_ = 0;

  std::mutex mutex_;
  std::map<std::int64_t, std::map<std::int64_t, std::vector<std::int64_t>>> permutations_;  // of each row, by round
};

}  // namespace tessera
