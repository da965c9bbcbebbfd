#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include <tessera/data/mixing.h>
#include <tessera/data/position.h>

namespace tessera {

/// One sample of an epoch.
struct SampleRef {
  std::int64_t index = 0;      // index in the whole source
  std::int64_t component = 0;  // index of the mixture component that the sample comes from
  std::int64_t repeat = 0;  // number of completed passes over the sample's component; crops, flips and captions change with each pass
};

/// The places [begin, end) of this rank in an epoch's order. A batch never crosses a segment's end.
struct Segment {
  std::int64_t number = 0;  // index of the segment, counted over all epochs
  std::int64_t begin = 0, end = 0;
  std::int64_t component = -1;    // the component that all samples of the segment come from; -1: several components
  std::int64_t shared_begin = 0;  // start of the segment in the epoch's order, counted over the places of all ranks
  std::int64_t shared_size = 0;   // length of the segment, counted over the places of all ranks
};

/// Groups of a component's entries. Each group is read as a whole (Source::group_starts()).
struct EntryGroups {
  std::vector<std::int64_t> starts;  // index of each group's first entry, ascending, followed by the number of entries; empty: no groups
  std::int64_t open = 1;             // number of groups open at a time
};

/// Maps the places in an epoch's order to samples. Each rank counts its own places, from 0 in each epoch. A place holds one sample; with
/// `accumulate` it holds one sample of each component, for the update's batch of that component. The mapping is a function of (components,
/// seed). All epochs have the same number of places. Thread-safe.
///
/// concat      a permutation of all samples
/// weighted    round(weight * size) samples of each component, permuted together. Each component takes its next samples from an
///             endless sequence of its permutations, so that over many epochs all its samples are used equally often
/// sequential  a segment for each component, with a permutation of its samples; the order of components changes each epoch
/// accumulate  as many places as the largest component has samples; each batch of an update takes its component's next
///             samples from an endless sequence of the component's permutations
///
/// A component with groups is permuted as follows. Its groups come in random order, and `open` of them are open at a time. The open groups
/// take turns; each supplies one of its entries, in random order. A used-up group is replaced by the next. If components are permuted
/// together, a component with groups gets random places, and its entries fill these places in the order just described.
class Sampler {
 public:
  /// The sizes of components are numbers of entries; an entry is a sample or an image-caption pair. `groups` has one item for each
  /// component, or is empty if no component has groups.
  Sampler(Mixing mixing, bool shuffle, std::uint64_t seed, const RankSlice& slice, std::vector<EntryGroups> groups = {});

  const std::vector<SourceComponent>& components() const { return components_; }
  std::int64_t batches_per_update() const { return mode_ == MixtureMode::accumulate ? std::ssize(components_) : 1; }
  std::int64_t places() const { return places_; }
  /// Returns the number of places in an epoch's order, counted over all ranks.
  std::int64_t shared_places() const { return shared_places_; }

  std::vector<Segment> segments(std::int64_t epoch) const;
  Segment segment_of(const DataPosition& place) const;
  /// Returns the sample at `place` for batch number `batch` of an update. With `accumulate`, batch number i comes from component i.
  SampleRef at(const DataPosition& place, std::int64_t batch);

  /// Converts a position in the samples of this rank to the position in the samples of all ranks.
  DataPosition to_shared(const DataPosition& place) const;
  /// Returns the first position of this rank at or after `shared`. The argument is a position in the samples of all ranks.
  DataPosition to_own(const DataPosition& shared) const;

 private:
  /// One component's entries [begin, begin + count) in the unshuffled order of an epoch. Used in the modes `concat` and `weighted`.
  struct Share {
    std::int64_t begin = 0, count = 0;
  };
  bool is_grouped(std::size_t component) const { return component < groups_.size() && !groups_[component].starts.empty(); }
  std::vector<std::int64_t> permutation(std::int64_t row, std::int64_t repeat, std::int64_t size) const;
  SampleRef mixed(std::int64_t epoch, std::int64_t entry);
  /// Returns sample number `place` of an endless sequence of passes over a component. If `permute` is true and the sampler shuffles, each
  /// pass is a new permutation of the component's samples.
  SampleRef of_row(std::int64_t component, std::int64_t place, bool permute);
  std::int64_t permuted(std::int64_t row, std::int64_t repeat, std::int64_t size, std::int64_t place);

  const std::vector<SourceComponent> components_;
  const MixtureMode mode_;
  const bool shuffle_;
  const std::uint64_t seed_;
  const RankSlice slice_;
  const std::vector<EntryGroups> groups_;
  std::vector<Share> shares_;
  std::int64_t shared_places_ = 0, places_ = 0;

  std::mutex mutex_;
  std::map<std::int64_t, std::map<std::int64_t, std::vector<std::int64_t>>> permutations_;  // by component (or kWholeEpoch), then by repeat
};

}  // namespace tessera
