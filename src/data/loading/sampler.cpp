#include "src/data/loading/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <tessera/base/random.h>

namespace tessera {
namespace {

// Number of permutations to keep for each component. At any time, the workers read from at most two consecutive epochs, which have three
// borders (start, middle and end). In mixed(), a component without groups needs a permutation only for a pass that such a border cuts.
constexpr std::size_t kRepeatsKept = 3;
constexpr std::int64_t kWholeEpoch = -1;  // key in permutations_ that stands for the whole epoch instead of one component

std::uint64_t key_word(std::int64_t value) {
  return static_cast<std::uint64_t>(value);
}

// Returns `count` numbers from `first` on, in random order.
std::vector<std::int64_t> shuffled(std::int64_t first, std::int64_t count, Random& random) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), first);
  random.shuffle(order);
  return order;
}

// Distributes the groups over `open` rows. Each group goes to the row that is shortest so far, so that the rows have similar lengths.
// The entry at place p comes from row (p modulo the number of rows). So if the number of rows is a multiple of the number of ranks, each
// rank reads its own groups.
std::vector<std::int64_t> grouped_permutation(const EntryGroups& groups, Random random) {
  const std::vector<std::int64_t> order = shuffled(0, std::ssize(groups.starts) - 1, random);
  std::vector<std::vector<std::int64_t>> rows(static_cast<std::size_t>(std::min(groups.open, std::ssize(order))));
  for (const std::int64_t group : order) {
    const std::int64_t begin = groups.starts[static_cast<std::size_t>(group)];
    const std::vector<std::int64_t> entries = shuffled(begin, groups.starts[static_cast<std::size_t>(group) + 1] - begin, random);
    auto& row = *std::ranges::min_element(rows, {}, [](const auto& each) { return each.size(); });
    row.insert(row.end(), entries.begin(), entries.end());
  }
  std::vector<std::int64_t> out;
  out.reserve(static_cast<std::size_t>(groups.starts.back()));
  for (std::size_t i = 0; std::ssize(out) < groups.starts.back(); ++i)
    for (const auto& row : rows)
      if (i < row.size()) out.push_back(row[i]);
  return out;
}

}  // namespace

Sampler::Sampler(Mixing mixing, bool shuffle, std::uint64_t seed, const RankSlice& slice, std::vector<EntryGroups> groups)
    : components_(std::move(mixing.components)),
      mode_(mixing.mode),
      shuffle_(shuffle),
      seed_(seed),
      slice_(slice),
      groups_(std::move(groups)) {
  std::int64_t largest = 0, all = 0;
  for (const SourceComponent& component : components_) {
    const auto count = std::max<std::int64_t>(1, std::llround(component.weight * static_cast<double>(component.size)));
    shares_.push_back({all, count});
    all += count;
    largest = std::max(largest, component.size);
  }
  shared_places_ = mode_ == MixtureMode::accumulate ? largest : all;
  for (const Segment& segment : segments(0)) places_ += segment.end - segment.begin;
}

std::vector<Segment> Sampler::segments(std::int64_t epoch) const {
  if (mode_ != MixtureMode::sequential) return {{epoch, 0, shared_places_ / slice_.count, -1, 0, shared_places_}};
  std::vector<std::int64_t> order(components_.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  if (shuffle_) Random(seed_, Purpose::shuffle, {key_word(epoch), key_word(std::ssize(components_))}).shuffle(order);
  std::vector<Segment> out;
  Segment next{epoch * std::ssize(components_)};
  for (const std::int64_t component : order) {
    next.component = component;
    next.shared_size = components_[static_cast<std::size_t>(component)].size;
    next.end = next.begin + next.shared_size / slice_.count;
    out.push_back(next);
    ++next.number;
    next.begin = next.end;
    next.shared_begin += next.shared_size;
  }
  return out;
}

Segment Sampler::segment_of(const DataPosition& place) const {
  const std::vector<Segment> all = segments(place.epoch);
  for (const Segment& segment : all)
    if (place.cursor < segment.end) return segment;
  return all.back();
}

DataPosition Sampler::to_shared(const DataPosition& place) const {
  const Segment segment = segment_of(place);
  return {place.epoch, segment.shared_begin + (place.cursor - segment.begin) * slice_.count};
}

DataPosition Sampler::to_own(const DataPosition& shared) const {
  for (const Segment& segment : segments(shared.epoch)) {
    const std::int64_t inside = shared.cursor - segment.shared_begin;
    if (inside >= segment.shared_size) continue;
    const std::int64_t own = (std::max<std::int64_t>(inside - slice_.index, 0) + slice_.count - 1) / slice_.count;
    return {shared.epoch, std::min(segment.begin + own, segment.end)};
  }
  return {shared.epoch, places_};
}

SampleRef Sampler::at(const DataPosition& place, std::int64_t batch) {
  const Segment segment = segment_of(place);
  const std::int64_t inside = (place.cursor - segment.begin) * slice_.count + slice_.index;
  switch (mode_) {
    case MixtureMode::accumulate:
      return of_row(batch, place.epoch * shared_places_ + inside, true);
    case MixtureMode::sequential:
      return of_row(segment.component, place.epoch * segment.shared_size + inside, true);
    case MixtureMode::concat:
    case MixtureMode::weighted:
      break;
  }
  return mixed(place.epoch, shuffle_ ? permuted(kWholeEpoch, place.epoch, shared_places_, inside) : inside);
}

SampleRef Sampler::mixed(std::int64_t epoch, std::int64_t entry) {
  std::size_t component = 0;
  while (entry >= shares_[component].begin + shares_[component].count) ++component;
  const std::int64_t size = components_[component].size, first = epoch * shares_[component].count,
                     behind = first + shares_[component].count;
  const std::int64_t place = first + entry - shares_[component].begin, repeat = place / size;
  // A pass over a component needs its own permutation if only part of the pass lies in this epoch, or if the component has groups. In all
  // other passes, the epoch's permutation already shuffles the entries.
  const bool cut = repeat * size < first || (repeat + 1) * size > behind || is_grouped(component);
  return of_row(static_cast<std::int64_t>(component), place, cut);
}

SampleRef Sampler::of_row(std::int64_t component, std::int64_t place, bool permute) {
  const SourceComponent& source = components_[static_cast<std::size_t>(component)];
  const std::int64_t repeat = place / source.size, inside = place % source.size;
  return {source.first + (permute && shuffle_ ? permuted(component, repeat, source.size, inside) : inside), component,
          repeat};
}

std::int64_t Sampler::permuted(std::int64_t row, std::int64_t repeat, std::int64_t size, std::int64_t place) {
  const std::lock_guard lock(mutex_);
  auto& repeats = permutations_[row];
  std::vector<std::int64_t>& order = repeats[repeat];
  if (order.empty()) {
    order = permutation(row, repeat, size);
    while (repeats.size() > (row == kWholeEpoch ? 2 : kRepeatsKept)) {
      const bool first_is_farther = repeat - repeats.begin()->first >= repeats.rbegin()->first - repeat;
      repeats.erase(first_is_farther ? repeats.begin() : std::prev(repeats.end()));
    }
  }
  return order[static_cast<std::size_t>(place)];
}

std::vector<std::int64_t> Sampler::permutation(std::int64_t row, std::int64_t repeat, std::int64_t size) const {
  if (row != kWholeEpoch) {
    Random random(seed_, Purpose::shuffle, {key_word(repeat), key_word(row)});
    const auto component = static_cast<std::size_t>(row);
    return is_grouped(component) ? grouped_permutation(groups_[component], random) : shuffled(0, size, random);
  }
  Random of_epoch(seed_, Purpose::shuffle, {key_word(repeat)});
  std::vector<std::int64_t> order = shuffled(0, size, of_epoch);
  for (std::size_t component = 0; component < groups_.size(); ++component) {
    if (!is_grouped(component)) continue;
    const Share& share = shares_[component];
    std::int64_t next = share.begin;
    for (std::int64_t& entry : order)
      if (entry >= share.begin && entry < share.begin + share.count) entry = next++;
  }
  return order;
}

}  // namespace tessera
