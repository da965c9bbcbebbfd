#include "src/data/loading/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <tessera/base/error.h>
#include <tessera/base/random.h>

namespace tessera {
namespace {

// The workers are at most at the border of two epochs, and an epoch cuts a permutation at either end at most.
constexpr std::size_t kRoundsKept = 3;
constexpr std::int64_t kWholeEpoch = -1;  // the row of permutations of all entries of an epoch

std::uint64_t key_word(std::int64_t value) {
  return static_cast<std::uint64_t>(value);
}

MixtureMode mode_of_source(const Source& source) {
  const auto* mixture = dynamic_cast<const Mixture*>(&source);
  return mixture != nullptr ? mixture->mode() : MixtureMode::concat;
}

}  // namespace

std::vector<SourceComponent> components_of(const Source& source) {
  const auto* mixture = dynamic_cast<const Mixture*>(&source);
  if (mixture == nullptr) return {{"", source.describe(), 0, source.size(), 1.0, &source}};
  std::vector<SourceComponent> out;
  for (const Mixture::Part& part : mixture->parts())
    out.push_back({part.label, concat("source ", part.label, " (", part.source->describe(), ")"),
                   mixture->first_of(out.size()), part.source->size(), part.weight, part.source.get()});
  return out;
}

Sampler::Sampler(const Source& source, std::vector<SourceComponent> parts, bool shuffle, std::uint64_t seed,
                       const RankSlice& shard)
    : parts_(std::move(parts)), mode_(mode_of_source(source)), shuffle_(shuffle), seed_(seed), shard_(shard) {
  std::int64_t largest = 0, all = 0;
  for (const SourceComponent& part : parts_) {
    const auto count = std::max<std::int64_t>(1, std::llround(part.weight * static_cast<double>(part.size)));
    shares_.push_back({all, count});
    all += count;
    largest = std::max(largest, part.size);
  }
  shared_places_ = mode_ == MixtureMode::accumulate ? largest : all;
  for (const Segment& segment : segments(0)) places_ += segment.end - segment.begin;
}

std::vector<Segment> Sampler::segments(std::int64_t epoch) const {
  if (mode_ != MixtureMode::sequential) return {{epoch, 0, shared_places_ / shard_.count, -1, 0, shared_places_}};
  std::vector<std::int64_t> order(parts_.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  if (shuffle_) Random(seed_, Purpose::shuffle, {key_word(epoch), key_word(std::ssize(parts_))}).shuffle(order);
  std::vector<Segment> out;
  Segment next{epoch * std::ssize(parts_)};
  for (const std::int64_t part : order) {
    next.part = part;
    next.shared_size = parts_[static_cast<std::size_t>(part)].size;
    next.end = next.begin + next.shared_size / shard_.count;
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
  return {place.epoch, segment.shared_begin + (place.cursor - segment.begin) * shard_.count};
}

DataPosition Sampler::to_own(const DataPosition& shared) const {
  for (const Segment& segment : segments(shared.epoch)) {
    const std::int64_t inside = shared.cursor - segment.shared_begin;
    if (inside >= segment.shared_size) continue;
    const std::int64_t own = (std::max<std::int64_t>(inside - shard_.index, 0) + shard_.count - 1) / shard_.count;
    return {shared.epoch, std::min(segment.begin + own, segment.end)};
  }
  return {shared.epoch, places_};
}

SampleRef Sampler::at(const DataPosition& place, std::int64_t component) {
  const Segment segment = segment_of(place);
  const std::int64_t inside = (place.cursor - segment.begin) * shard_.count + shard_.index;
  switch (mode_) {
    case MixtureMode::accumulate:
      return of_row(component, place.epoch * shared_places_ + inside, true);
    case MixtureMode::sequential:
      return of_row(segment.part, place.epoch * segment.shared_size + inside, true);
    case MixtureMode::concat:
    case MixtureMode::weighted:
      break;
  }
  return mixed(place.epoch, shuffle_ ? permuted(kWholeEpoch, place.epoch, shared_places_, inside) : inside);
}

SampleRef Sampler::mixed(std::int64_t epoch, std::int64_t entry) {
  std::size_t part = 0;
  while (entry >= shares_[part].begin + shares_[part].count) ++part;
  const std::int64_t size = parts_[part].size, first = epoch * shares_[part].count,
                     behind = first + shares_[part].count;
  const std::int64_t place = first + entry - shares_[part].begin, repeat = place / size;
  // A permutation that lies wholly in this epoch is permuted with all the others already.
  const bool cut = repeat * size < first || (repeat + 1) * size > behind;
  return of_row(static_cast<std::int64_t>(part), place, cut);
}

SampleRef Sampler::of_row(std::int64_t part, std::int64_t place, bool permute) {
  const SourceComponent& source = parts_[static_cast<std::size_t>(part)];
  const std::int64_t repeat = place / source.size, inside = place % source.size;
  return {source.first + (permute && shuffle_ ? permuted(part, repeat, source.size, inside) : inside), part, repeat};
}

std::int64_t Sampler::permuted(std::int64_t row, std::int64_t repeat, std::int64_t size, std::int64_t place) {
  const std::lock_guard lock(mutex_);
  auto& rounds = permutations_[row];
  std::vector<std::int64_t>& order = rounds[repeat];
  if (order.empty()) {
    order.resize(static_cast<std::size_t>(size));
    std::iota(order.begin(), order.end(), std::int64_t{0});
    if (row == kWholeEpoch)
      Random(seed_, Purpose::shuffle, {key_word(repeat)}).shuffle(order);
    else
      Random(seed_, Purpose::shuffle, {key_word(repeat), key_word(row)}).shuffle(order);
    while (rounds.size() > (row == kWholeEpoch ? 2 : kRoundsKept)) {
      const bool first_is_farther = repeat - rounds.begin()->first >= rounds.rbegin()->first - repeat;
      rounds.erase(first_is_farther ? rounds.begin() : std::prev(rounds.end()));
    }
  }
  return order[static_cast<std::size_t>(place)];
}

}  // namespace tessera
