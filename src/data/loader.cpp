#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <ctime>
#include <mutex>

#include <ATen/ATen.h>

#include "src/data/epoch_order.h"
#include "src/data/ordered_workers.h"
#include "src/data/prepare.h"
#include "src/data/skip_log.h"
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

// What threads spend at work: by the clock, and of the processor's time.
struct WorkTotals {
  std::atomic<std::int64_t> nanoseconds = 0, cpu_nanoseconds = 0;
};

class WorkTime {
 public:
  explicit WorkTime(WorkTotals& totals) : totals_(totals) {}
  ~WorkTime() {
    totals_.nanoseconds += now(CLOCK_MONOTONIC) - begin_;
    totals_.cpu_nanoseconds += now(CLOCK_THREAD_CPUTIME_ID) - cpu_begin_;
  }
  WorkTime(const WorkTime&) = delete;
  WorkTime& operator=(const WorkTime&) = delete;

 private:
  static std::int64_t now(clockid_t clock) {
    timespec time{};
    ::clock_gettime(clock, &time);
    return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  }
  WorkTotals& totals_;
  const std::int64_t begin_ = now(CLOCK_MONOTONIC), cpu_begin_ = now(CLOCK_THREAD_CPUTIME_ID);
};

at::Tensor collate_regions(const std::vector<PreparedSample>& samples, at::Tensor& mask) {
  std::int64_t most = 0;
  const std::int64_t width = samples[0].region_width;
  for (const PreparedSample& sample : samples) {
    if (sample.region_width != width)
      user_error("region features of sample ", sample.key, " are ", sample.region_width, " wide, those of ",
                 samples[0].key, " ", width);
    most = std::max(most, static_cast<std::int64_t>(sample.regions.size()) / width);
  }
  const auto count = static_cast<std::int64_t>(samples.size());
  at::Tensor regions = at::zeros({count, most, width}, at::kFloat);
  mask = at::zeros({count, most}, at::kBool);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::vector<float>& values = samples[static_cast<std::size_t>(i)].regions;
    std::copy(values.begin(), values.end(), regions.data_ptr<float>() + i * most * width);
    std::fill_n(mask.data_ptr<bool>() + i * most, static_cast<std::int64_t>(values.size()) / width, true);
  }
  return regions;
}

}  // namespace

// Positions in here are the shard's own.
struct Loader::Impl {
  Impl(std::shared_ptr<const Source> given_source, std::shared_ptr<const Tokenizer> given_tokenizer,
       const Preprocessing& given_preprocessing, const LoaderSettings& given_settings, const Needs& given_needs,
       std::uint64_t seed, const Shard& given_shard)
      : source(std::move(given_source)),
        tokenizer(std::move(given_tokenizer)),
        shard(given_shard),
        image_size(given_preprocessing.image_size),
        settings(given_settings),
        needs(given_needs),
        order(*source, settings.shuffle, seed, shard),
        lanes(order.lanes()) {
    check_sizes();
    for (const SourcePart& part : order.parts()) counts.emplace_back(part.described);
    preparer = std::make_unique<SamplePreparer>(source, tokenizer, given_preprocessing, settings, needs, seed);
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
    for (std::vector<PreparedSample>& row : rows) out.batches.push_back(collate(row));
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

  // One copy of each sample into the batch's tensors.
  Batch collate(std::vector<PreparedSample>& slots) const {
    const auto count = static_cast<std::int64_t>(slots.size());
    Batch batch;
    if (!needs.image_views.empty()) {
      at::Tensor images = at::empty({count, 3, image_size.height, image_size.width}, at::kByte);
      std::uint8_t* out = images.data_ptr<std::uint8_t>();
      for (const PreparedSample& sample : slots) {
        std::memcpy(out, sample.pixels.data(), sample.pixels.size());
        out += sample.pixels.size();
      }
      batch.images["image"] = std::move(images);
    }
    for (std::size_t view = 0; view < needs.texts.size(); ++view)
      batch.texts[needs.texts[view]] = collate_texts(slots, view);
    if (needs.regions) batch.regions = collate_regions(slots, batch.region_mask);
    batch.labels = at::empty({count}, at::kLong);
    for (std::size_t i = 0; i < slots.size(); ++i) {
      batch.labels.data_ptr<std::int64_t>()[i] = slots[i].label;
      batch.keys.push_back(std::move(slots[i].key));
    }
    if (needs.ids) collate_ids(slots, batch);
    return batch;
  }

  void collate_ids(const std::vector<PreparedSample>& slots, Batch& batch) const {
    const auto collated = [&](std::int64_t PreparedSample::*id) {
      at::Tensor out = at::empty({static_cast<std::int64_t>(slots.size())}, at::kLong);
      for (std::size_t i = 0; i < slots.size(); ++i) out.data_ptr<std::int64_t>()[i] = slots[i].*id;
      return out;
    };
    if (!needs.image_views.empty()) batch.image_ids = collated(&PreparedSample::image_id);
    if (!needs.texts.empty()) batch.text_ids = collated(&PreparedSample::text_id);
  }

  TextBatch collate_texts(const std::vector<PreparedSample>& slots, std::size_t view) const {
    const auto count = static_cast<std::int64_t>(slots.size());
    const std::int64_t length = tokenizer->context_length();
    TextBatch out{at::empty({count, length}, at::kLong), at::empty({count, length}, at::kBool)};
    auto* ids = out.ids.data_ptr<std::int64_t>();
    auto* mask = out.mask.data_ptr<bool>();
    std::fill_n(ids, count * length, tokenizer->pad_id());
    std::fill_n(mask, count * length, false);
    for (const PreparedSample& sample : slots) {
      const std::vector<std::int64_t>& tokens = sample.ids[view];
      TORCH_CHECK(static_cast<std::int64_t>(tokens.size()) <= length, "the tokenizer gave ", tokens.size(),
                  " ids, more than its context of ", length);
      std::copy(tokens.begin(), tokens.end(), ids);
      std::fill_n(mask, tokens.size(), true);
      ids += length;
      mask += length;
    }
    return out;
  }

  std::shared_ptr<const Source> source;
  std::shared_ptr<const Tokenizer> tokenizer;
  Shard shard;
  config::Size image_size;
  LoaderSettings settings;
  Needs needs;
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
    : impl_(std::make_unique<Impl>(std::move(source), std::move(tokenizer), preprocessing, settings, needs, seed,
                                   shard)) {}

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
