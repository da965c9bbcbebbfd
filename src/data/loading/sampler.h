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
  std::int64_t index = 0;      // in the whole source
  std::int64_t component = 0;  // that it is of
  std::int64_t repeat = 0;  // how often its component was gone through before; crops, flips and captions change with it
};

/// Places [begin, end) of an epoch. No batch reaches beyond one.
struct Segment {
  std::int64_t number = 0;  // counted over all epochs
  std::int64_t begin = 0, end = 0;
  std::int64_t component = -1;    // that all its samples are of; -1: mixed
  std::int64_t shared_begin = 0;  // counted over all ranks
  std::int64_t shared_size = 0;
};

/// Groups of a component's entries that are read whole (GroupedSource).
struct EntryGroups {
  std::vector<std::int64_t> starts;  // the first entry of each, rising, then the component's size; empty: there are no groups
  std::int64_t open = 1;             // at a time
};

/// Which sample stands where in each epoch. Places are counted as one rank has them, from 0 in each epoch; a place holds
/// a sample for each batch of an update: one, or with `accumulate` one of each component. Everything follows from
/// (components, seed). All epochs have the same number of places. Thread-safe.
///
/// concat      the permutation of all samples
/// weighted    of each component round(weight * size) samples, permuted together. They are the next ones of an endless
///             row of the component's permutations, so that over epochs all its samples come equally often
/// sequential  a segment for each component, with its permutation; another order of components each epoch
/// accumulate  as many places as the largest component has samples; each batch of an update is drawn from an endless row
///             of its component's permutations
///
/// The permutation of a component with groups goes through its groups in random order and takes from each of `open` of them in
/// turn one of its entries, in random order; the next group takes the place of one that has none left. Where components are
/// permuted together, such a component's places are random, and its samples come to them in that order.
class Sampler {
 public:
  /// The components are counted in what an epoch holds once each: samples, or pairs of picture and caption.
  /// groups: of each component; none: no component has any.
  Sampler(Mixing mixing, bool shuffle, std::uint64_t seed, const RankSlice& slice, std::vector<EntryGroups> groups = {});

  const std::vector<SourceComponent>& components() const { return components_; }
  std::int64_t batches_per_update() const { return mode_ == MixtureMode::accumulate ? std::ssize(components_) : 1; }
  std::int64_t places() const { return places_; }
  /// Over all ranks.
  std::int64_t shared_places() const { return shared_places_; }

  std::vector<Segment> segments(std::int64_t epoch) const;
  Segment segment_of(const DataPosition& place) const;
  /// batch: which of the update's batches the sample is for.
  SampleRef at(const DataPosition& place, std::int64_t batch);

  /// The same place counted over all ranks.
  DataPosition to_shared(const DataPosition& place) const;
  /// The first own place at or behind one that is counted over all ranks.
  DataPosition to_own(const DataPosition& shared) const;

 private:
  /// Entries [begin, begin + count) of an epoch's concat or weighted order are those of one component.
  struct Share {
    std::int64_t begin = 0, count = 0;
  };
  bool is_grouped(std::size_t component) const { return component < groups_.size() && !groups_[component].starts.empty(); }
  std::vector<std::int64_t> permutation(std::int64_t row, std::int64_t repeat, std::int64_t size) const;
  SampleRef mixed(std::int64_t epoch, std::int64_t entry);
  /// The place-th sample of the endless row of a component's permutations.
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
  std::map<std::int64_t, std::map<std::int64_t, std::vector<std::int64_t>>> permutations_;  // of each row, by repeat
};

}  // namespace tessera
