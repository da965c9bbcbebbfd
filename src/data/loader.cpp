#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>

#include <ATen/ATen.h>

#include "src/data/collate.h"
#include "src/data/epoch_order.h"
#include "src/data/ordered_workers.h"
#include "src/data/prepare.h"
#include "src/data/skip_log.h"
#include "src/data/work_time.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/data/loader.h>

namespace tessera {
namespace {

constexpr std::int64_t kPatience = 100;  // samples before the share of bad ones is judged

/// A sample made ready, and where it comes from.
struct PlacedSample {
  PreparedSample sample;
  std::int64_t part = 0;  // of the source
};

/// One batch of each lane.
struct ReadyBatches {
  std::vector<Batch> batches;
  std::int64_t epoch = 0;
  Stretch stretch;
  DataPosition end;                             // where the next ones start
  std::map<std::string, std::int64_t> skipped;  // on the way to them
};

/// What was met of one part of the source.
struct PartCount {
  explicit PartCount(const std::string& described) : skips(described) {}
  std::int64_t good = 0;
  SkipLog skips;
  std::int64_t reported_skips = 0;
};

}  // namespace

// Positions in here are the shard's own.
struct Loader::Impl {
  Impl(std::shared_ptr<const Source> given_source, const std::shared_ptr<const Tokenizer>& given_tokenizer,
       const Preprocessing& given_preprocessing, const LoaderSettings& given_settings, const Needs& given_needs,
       std::uint64_t seed, const Shard& given_shard)
      : source(std::move(given_source)),
        shard(given_shard),
        settings(given_settings),
        collator(given_tokenizer, ImageViews(given_preprocessing, given_settings, given_needs, seed).sizes(),
                 given_needs),
        order(*source, settings.shuffle, seed, shard),
        lanes(order.lanes()) {
    check_sizes();
    for (const SourcePart& part : order.parts()) counts.emplace_back(part.described);
    preparer =
        std::make_unique<SamplePreparer>(source, given_tokenizer, given_preprocessing, settings, given_needs, seed);
  }

  ~Impl() { stop(); }

  // Every stretch must hold a batch, and so must every source that gives batches of its own.
  void check_sizes() const {
    const auto check = [&](std::int64_t size, const std::string& described) {
      if (size >= settings.batch_size) return;
      user_error(described, ": fewer samples than one batch of ", settings.batch_size,
                 shard.count > 1 ? concat(" for each of ", shard.count, " processes") : "",
                 size > 0 ? concat(": set batch_size to ", size, " or less") : ": use fewer processes");
    };
    if (lanes > 1)
      for (const SourcePart& part : order.parts()) check(part.size / shard.count, part.described);
    for (const Stretch& stretch : order.stretches(0)) check(stretch.end - stretch.begin, described(stretch.part));
  }

  // A part of the source, or all of it (-1).
  std::string described(std::int64_t part) const {
    return part < 0 ? source->describe() : order.parts()[static_cast<std::size_t>(part)].described;
  }

  void stop() {
    if (samples) samples->stop();  // first, or the collating thread would wait for ever
    batches.reset();
    samples.reset();
  }

  void start() {
    start_position = normalised(position);
    taken = 0;
    over_stretch = order.stretch_of(start_position).number - 1;
    batches_of_stretch = 0;
    good_of_stretch.assign(static_cast<std::size_t>(lanes), 0);
    rows.resize(static_cast<std::size_t>(lanes));
    for (auto& row : rows) row.assign(static_cast<std::size_t>(settings.batch_size), {});
    filled.assign(static_cast<std::size_t>(lanes), 0);
    samples = std::make_unique<OrderedWorkers<PlacedSample>>(
        settings.threads, 4 * settings.threads, -1, [this](std::int64_t ticket) { return make_sample(ticket); });
    const std::int64_t ahead = (settings.prefetch + lanes - 1) / lanes;
    batches =
        std::make_unique<OrderedWorkers<ReadyBatches>>(1, ahead, -1, [this](std::int64_t) { return make_batches(); });
  }

  // What is left of a stretch is skipped when it cannot fill a batch.
  DataPosition normalised(DataPosition place) const {
    while (true) {
      if (place.cursor >= order.places()) place = {place.epoch + 1, 0};
      const Stretch stretch = order.stretch_of(place);
      if (stretch.end - place.cursor >= settings.batch_size) return place;
      place.cursor = stretch.end;
    }
  }

  DataPosition place_of(std::int64_t ticket) const {
    const std::int64_t entries = start_position.cursor + ticket / lanes;
    return {start_position.epoch + entries / order.places(), entries % order.places()};
  }

  PlacedSample make_sample(std::int64_t ticket) {
    const DataPosition place = place_of(ticket);
    if (order.stretch_of(place).number <= over_stretch) return {};  // will be left out
    const WorkTime time(work);
    const OrderedSample next = order.at(place, ticket % lanes);
    return {preparer->prepare(next.index, next.round), next.part};
  }

  ReadyBatches make_batches() {
    ReadyBatches out;
    std::fill(filled.begin(), filled.end(), 0);
    for (bool complete = false; !complete;) {
      const DataPosition place = place_of(taken);
      out.stretch = order.stretch_of(place);
      if (place.cursor == out.stretch.begin) {
        std::fill(filled.begin(), filled.end(), 0);
        std::fill(good_of_stretch.begin(), good_of_stretch.end(), 0);
        batches_of_stretch = 0;
      }
      const bool left_out = out.stretch.number <= over_stretch;
      for (std::int64_t lane = 0; lane < lanes; ++lane, ++taken) {
        PlacedSample sample = samples->take();
        if (!left_out) accept(std::move(sample), static_cast<std::size_t>(lane), out);
      }
      out.end = {place.epoch, place.cursor + 1};
      const std::int64_t least = *std::min_element(filled.begin(), filled.end());
      complete = !left_out && least == settings.batch_size;
      if (!left_out && least + out.stretch.end - out.end.cursor < settings.batch_size) end_stretch(out.stretch);
    }
    ++batches_of_stretch;
    out.epoch = out.end.epoch;
    out.end = normalised(out.end);
    if (order.stretch_of(out.end).number != out.stretch.number) {
      over_stretch = out.stretch.number;
      report_epoch(out.stretch);
    }
    for (std::vector<PreparedSample>& row : rows) out.batches.push_back(collator.collate(row));
    return out;
  }

  // A batch that is full while that of another lane is not leaves further samples out: one cursor serves all lanes.
  void accept(PlacedSample&& placed, std::size_t lane, ReadyBatches& out) {
    PartCount& count = counts[static_cast<std::size_t>(placed.part)];
    if (placed.sample.good()) {
      ++count.good;
      ++good_of_stretch[lane];
      if (filled[lane] < settings.batch_size)
        rows[lane][static_cast<std::size_t>(filled[lane]++)] = std::move(placed.sample);
      return;
    }
    count.skips.note(placed.sample.bad_reason, placed.sample.bad_text);
    ++out.skipped[placed.sample.bad_reason];
    check_share(placed.part);
  }

  // Too few are left to fill the batch. The flag spares the workers the rest.
  void end_stretch(const Stretch& ended) {
    over_stretch = ended.number;
    report_epoch(ended);
    const bool from_its_start =
        order.stretch_of(start_position).number != ended.number || start_position.cursor == ended.begin;
    if (batches_of_stretch > 0 || !from_its_start) return;
    const auto fewest = std::min_element(good_of_stretch.begin(), good_of_stretch.end());
    const std::int64_t part = lanes > 1 ? fewest - good_of_stretch.begin() : ended.part;
    std::map<std::string, std::int64_t> skipped;
    std::string first;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      if (part >= 0 && static_cast<std::size_t>(part) != i) continue;
      for (const auto& [reason, count] : counts[i].skips.counts()) skipped[reason] += count;
      if (first.empty()) first = counts[i].skips.first();
    }
    user_error(described(part), ": gave only ", *fewest, " readable samples, fewer than one batch of ",
               settings.batch_size, "; skipped: ", describe_counts(skipped), "; the first: ", first);
  }

  void report_epoch(const Stretch& ended) {
    const std::int64_t epoch = place_of(taken - 1).epoch;
    if (ended.number != order.stretches(epoch).back().number) return;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      const SkipLog& skips = counts[i].skips;
      if (skips.total() == counts[i].reported_skips) continue;
      counts[i].reported_skips = skips.total();
      const std::string& label = order.parts()[i].label;
      log::info("data: ", label.empty() ? "" : label + ": ", "up to the end of epoch ", epoch, " ",
                with_thousands(skips.total()), " of ", with_thousands(skips.total() + counts[i].good),
                " samples were skipped: ", describe_counts(skips.counts()));
    }
  }

  void check_share(std::int64_t part) const {
    const auto& [good, skips, reported] = counts[static_cast<std::size_t>(part)];
    const std::int64_t seen = good + skips.total();
    if (seen < kPatience || static_cast<double>(skips.total()) <= settings.max_bad_share * static_cast<double>(seen))
      return;
    user_error(described(part), ": ", skips.total(), " of the first ", seen, " samples cannot be used (",
               describe_counts(skips.counts()), "), more than max_bad_share ", settings.max_bad_share,
               " allows; the first: ", skips.first());
  }

  std::shared_ptr<const Source> source;
  Shard shard;
  LoaderSettings settings;
  Collator collator;
  EpochOrder order;
  const std::int64_t lanes;
  std::unique_ptr<SamplePreparer> preparer;

  // The caller's side.
  DataPosition position;  // of the batches that are handed out next, or just now
  std::int64_t next_lane = 0;
  ReadyBatches ready;                                             // of these, what is not handed out yet
  std::int64_t last_epoch = 0, last_stretch = 0, last_part = -1;  // of the batch that went out last
  LoaderStatistics statistics;

  // The collating thread's side.
  DataPosition start_position;
  std::int64_t taken = 0;
  std::int64_t batches_of_stretch = 0;
  std::vector<std::int64_t> good_of_stretch;  // of each lane
  std::vector<PartCount> counts;
  std::vector<std::vector<PreparedSample>> rows;  // of each lane
  std::vector<std::int64_t> filled;
  std::atomic<std::int64_t> over_stretch = -1;  // no batch will be filled from what is left of this stretch

  WorkTotals work;

  std::unique_ptr<OrderedWorkers<PlacedSample>> samples;
  std::unique_ptr<OrderedWorkers<ReadyBatches>> batches;
};

Loader::Loader(std::shared_ptr<const Source> source, std::shared_ptr<const Tokenizer> tokenizer,
               const Preprocessing& preprocessing, const LoaderSettings& settings, const Needs& needs,
               std::uint64_t seed, const Shard& shard)
    : impl_(std::make_unique<Impl>(std::move(source), tokenizer, preprocessing, settings, needs, seed, shard)) {}

Loader::~Loader() = default;

Batch Loader::next() {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  if (!impl_->batches) impl_->start();
  ReadyBatches& ready = impl_->ready;
  if (ready.batches.empty()) {
    ready = impl_->batches->take();
    for (const auto& [reason, count] : ready.skipped) impl_->statistics.skipped[reason] += count;
  }
  Batch batch = std::move(ready.batches[static_cast<std::size_t>(impl_->next_lane)]);
  impl_->statistics.wait_seconds += std::chrono::duration<double>(Clock::now() - begin).count();
  impl_->statistics.samples += batch.size();
  impl_->last_epoch = ready.epoch;
  impl_->last_stretch = ready.stretch.number;
  impl_->last_part = impl_->lanes > 1 ? impl_->next_lane : ready.stretch.part;
  if (++impl_->next_lane == impl_->lanes) {
    impl_->next_lane = 0;
    impl_->position = ready.end;
    ready.batches.clear();
  }
  return batch;
}

std::int64_t Loader::epoch() const {
  return impl_->last_epoch;
}

std::int64_t Loader::stretch() const {
  return impl_->last_stretch;
}

std::string Loader::source_label() const {
  return impl_->last_part < 0 ? "" : impl_->order.parts()[static_cast<std::size_t>(impl_->last_part)].label;
}

std::int64_t Loader::batches_per_update() const {
  return impl_->lanes;
}

DataPosition Loader::position() const {
  const DataPosition shared = impl_->order.to_shared(impl_->position);
  return {shared.epoch, shared.cursor * impl_->lanes + impl_->next_lane};
}

void Loader::seek(const DataPosition& position) {
  const std::int64_t lanes = impl_->lanes, entries = impl_->order.shared_places() * lanes;
  if (position.epoch < 0 || position.cursor < 0 || position.cursor > entries)
    user_error("the saved data position is sample ", position.cursor, " of epoch ", position.epoch, ", but ",
               impl_->source->describe(),
               ": the data has changed since; start a new run, or give the data it was saved with");
  impl_->stop();
  impl_->ready = {};
  impl_->next_lane = position.cursor % lanes;
  impl_->position = impl_->normalised(impl_->order.to_own({position.epoch, position.cursor / lanes}));
}

std::int64_t Loader::batches_per_epoch() const {
  std::int64_t batches = 0;
  for (const Stretch& stretch : impl_->order.stretches(0))
    batches += (stretch.end - stretch.begin) / impl_->settings.batch_size;
  return batches * impl_->lanes;
}

LoaderStatistics Loader::statistics() const {
  LoaderStatistics out = impl_->statistics;
  out.work_seconds = 1e-9 * static_cast<double>(impl_->work.nanoseconds);
  out.cpu_seconds = 1e-9 * static_cast<double>(impl_->work.cpu_nanoseconds);
  return out;
}

}  // namespace tessera
