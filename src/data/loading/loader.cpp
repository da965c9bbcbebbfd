#include <algorithm>
#include <atomic>
#include <chrono>

#include "src/data/loading/caption_entries.h"
#include "src/data/loading/collate.h"
#include "src/data/loading/sampler.h"
#include "src/data/loading/ordered_workers.h"
#include "src/data/loading/component_counts.h"
#include "src/data/loading/sample_transform.h"
#include "src/data/loading/sample_fetcher.h"
#include "src/data/loading/skip_list.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/data/loading/loader.h>

namespace tessera {
namespace {

/// One batch of each component.
struct ReadyBatches {
  std::vector<Batch> batches;
  std::int64_t epoch = 0;
  Segment segment;
  DataPosition end;                             // where the next ones start
  std::map<std::string, std::int64_t> skipped;  // on the way to them
  MemoryBudget::Claim claim;
};

std::shared_ptr<const CaptionEntries> entries_of(const std::shared_ptr<const Source>& source,
                                                 const LoaderSettings& settings) {
  if (settings.caption_choice != "all") return nullptr;
  return std::make_shared<CaptionEntries>(source, settings);
}

std::shared_ptr<Sampler> order_of(const Source& source, const CaptionEntries* entries, bool shuffle,
                                     std::uint64_t seed, const RankSlice& shard) {
  std::vector<SourceComponent> parts = components_of(source);
  if (entries != nullptr) parts = entries->counted(std::move(parts));
  return std::make_shared<Sampler>(source, std::move(parts), shuffle, seed, shard);
}

}  // namespace

// Positions in here are the shard's own.
struct Loader::Impl {
  Impl(std::shared_ptr<const Source> given_source, const std::shared_ptr<const Tokenizer>& tokenizer,
       const Preprocessing& preprocessing, const LoaderSettings& given_settings, const Needs& needs,
       std::uint64_t given_seed, const RankSlice& given_shard, const LoaderTarget& target)
      : source(std::move(given_source)),
        seed(given_seed),
        shard(given_shard),
        settings(given_settings),
        collator(tokenizer, ImageViews(preprocessing, settings, needs, seed).sizes(), needs, target.pinned),
        transform(std::make_shared<SampleTransform>(source, tokenizer, preprocessing, settings, needs, seed)),
        entries(entries_of(source, settings)),
        order(order_of(*source, entries.get(), settings.shuffle, seed, shard)),
        components(order->components()),
        counts(order->parts(), settings, needed_fields(needs)),
        skip_list(target.skipped_file, settings.skipped_list) {
    check_sizes();
    announce_stream();
  }

  ~Impl() { stop(); }

  // Every segment must hold a batch, and so must every source that gives batches of its own.
  void check_sizes() const {
    const auto check = [&](std::int64_t size, const std::string& described) {
      if (size >= settings.batch_size) return;
      user_error(described, ": fewer samples than one batch of ", settings.batch_size,
                 shard.count > 1 ? concat(" for each of ", shard.count, " processes") : "",
                 size > 0 ? concat(": set batch_size to ", size, " or less") : ": use fewer processes");
    };
    if (components > 1)
      for (const SourceComponent& part : order->parts()) check(part.size / shard.count, part.described);
    for (const Segment& segment : order->segments(0)) check(segment.end - segment.begin, described(segment.part));
  }

  void announce_stream() const {
    if (!stream_reader_of(source, seed, settings.shuffle, shard) || shard.index > 0) return;
    log::info("data: ", dynamic_cast<const StreamSource&>(*source).describe_order());
  }

  // A part of the source, or all of it (-1).
  std::string described(std::int64_t part) const {
    return part < 0 ? source->describe() : order->parts()[static_cast<std::size_t>(part)].described;
  }

  // First the samples, or the collating thread would wait for ever.
  void stop() {
    if (!maker) return;
    maker->stop();
    samples->stop();
    batches.reset();
    samples.reset();
    peak_bytes = std::max(peak_bytes, maker->budget().peak());
    maker.reset();
  }

  void start() {
    start_position = normalized(position);
    taken = 0;
    batches_of_stretch = 0;
    good_of_segment.assign(static_cast<std::size_t>(components), 0);
    rows.clear();
    rows.resize(static_cast<std::size_t>(components));
    for (auto& row : rows) row.resize(static_cast<std::size_t>(settings.batch_size));
    filled.assign(static_cast<std::size_t>(components), 0);
    maker = std::make_shared<SampleFetcher>(SampleFetcher::Parts{source, transform, order, entries, work,
                                                             stream_reader_of(source, seed, settings.shuffle, shard)},
                                          settings, start_position);
    maker->leave_out(order->segment_of(start_position).number - 1);
    wait_policy = {settings.warn_after, settings.timeout, source->describe(),
                [maker = maker](std::int64_t ticket) { return maker->describe(ticket); }};
    samples = std::make_unique<OrderedWorkers<FetchedSample>>(
        settings.threads, 4 * settings.threads, -1,
        [maker = maker](std::int64_t ticket, std::int64_t thread) { return maker->make(ticket, thread); });
    samples->abandon_after(kAbandonAfter);
    const std::int64_t ahead = (settings.prefetch + components - 1) / components;
    batches = std::make_unique<OrderedWorkers<ReadyBatches>>(
        1, ahead, -1, [this](std::int64_t, std::int64_t) { return make_batches(); });
  }

  // What is left of a segment is skipped when it cannot fill a batch.
  DataPosition normalized(DataPosition place) const {
    while (true) {
      if (place.cursor >= order->places()) place = {place.epoch + 1, 0};
      const Segment segment = order->segment_of(place);
      if (segment.end - place.cursor >= settings.batch_size) return place;
      place.cursor = segment.end;
    }
  }

  ReadyBatches make_batches() {
    // The samples of the batch, and then the batch beside them.
    maker->budget().wait_for_batch(2 * bytes_of_batches);
    ReadyBatches out;
    std::fill(filled.begin(), filled.end(), 0);
    for (bool complete = false; !complete;) {
      const DataPosition place = maker->place_of(taken);
      out.segment = order->segment_of(place);
      if (place.cursor == out.segment.begin) {
        std::fill(filled.begin(), filled.end(), 0);
        std::fill(good_of_segment.begin(), good_of_segment.end(), 0);
        batches_of_stretch = 0;
      }
      const bool left_out = maker->is_left_out(out.segment.number);
      for (std::int64_t component = 0; component < components; ++component, ++taken) {
        maker->budget().set_due(taken);
        FetchedSample sample = take();
        if (!left_out) accept(std::move(sample), static_cast<std::size_t>(component), place.epoch, out);
      }
      out.end = {place.epoch, place.cursor + 1};
      const std::int64_t least = *std::min_element(filled.begin(), filled.end());
      complete = !left_out && least == settings.batch_size;
      if (!left_out && least + out.segment.end - out.end.cursor < settings.batch_size) end_segment(out.segment);
    }
    ++batches_of_stretch;
    out.epoch = out.end.epoch;
    out.end = normalized(out.end);
    if (order->segment_of(out.end).number != out.segment.number) {
      maker->leave_out(out.segment.number);
      report_epoch(out.segment);
    }
    collate(out);
    return out;
  }

  FetchedSample take() {
    try {
      return samples->take(&wait_policy);
    } catch (const UserError&) {
      samples->abandon_after(0);  // it had its time
      throw;
    }
  }

  void collate(ReadyBatches& out) {
    bytes_of_batches = 0;
    for (std::vector<PreparedSample>& row : rows) {
      out.batches.push_back(collator.collate(row));
      bytes_of_batches += bytes_of(out.batches.back());
      for (PreparedSample& sample : row) sample = {};
    }
    out.claim = maker->budget().claim_batch(bytes_of_batches);
    if (!std::exchange(size_told, true) && 2 * bytes_of_batches > settings.prefetch_mb << 20)
      log::warning("data: prefetch_mb ", settings.prefetch_mb, " is less than two batches, which take ",
                   format_bytes(2 * static_cast<double>(bytes_of_batches)), ": none is made while another is ready");
  }

  // A batch that is full while that of another component is not leaves further samples out: one cursor serves all components.
  void accept(FetchedSample&& placed, std::size_t component, std::int64_t epoch, ReadyBatches& out) {
    PreparedSample& sample = placed.sample;
    if (sample.good()) {
      counts.good(placed.part);
      ++good_of_segment[component];
      if (filled[component] < settings.batch_size) rows[component][static_cast<std::size_t>(filled[component]++)] = std::move(sample);
      return;
    }
    ++out.skipped[sample.bad_reason];
    skip_list.note(epoch, sample.key, sample.bad_reason, sample.bad_text);
    counts.bad(placed.part, sample);
  }

  // Too few are left to fill the batch. The maker is spared the rest.
  void end_segment(const Segment& ended) {
    maker->leave_out(ended.number);
    report_epoch(ended);
    const bool from_its_start =
        order->segment_of(start_position).number != ended.number || start_position.cursor == ended.begin;
    if (batches_of_stretch > 0 || !from_its_start) return;
    const auto fewest = std::min_element(good_of_segment.begin(), good_of_segment.end());
    const std::int64_t part = components > 1 ? fewest - good_of_segment.begin() : ended.part;
    user_error(described(part), ": gave only ", *fewest, " readable samples, fewer than one batch of ",
               settings.batch_size, "; skipped: ", counts.describe(part));
  }

  void report_epoch(const Segment& ended) {
    const std::int64_t epoch = maker->place_of(taken - 1).epoch;
    if (ended.number == order->segments(epoch).back().number) counts.report(epoch);
  }

  const std::shared_ptr<const Source> source;
  const std::uint64_t seed;
  const RankSlice shard;
  const LoaderSettings settings;
  const Collator collator;
  const std::shared_ptr<const SampleTransform> transform;
  const std::shared_ptr<const CaptionEntries> entries;
  const std::shared_ptr<Sampler> order;
  const std::int64_t components;
  const std::shared_ptr<WorkTotals> work = std::make_shared<WorkTotals>();

  // The caller's side.
  DataPosition position;  // of the batches that are handed out next, or just now
  std::int64_t next_lane = 0;
  ReadyBatches ready;                                             // of these, what is not handed out yet
  std::int64_t last_epoch = 0, last_stretch = 0, last_part = -1;  // of the batch that went out last
  LoaderStatistics statistics;
  std::int64_t peak_bytes = 0;  // before the last seek

  // The collating thread's side.
  DataPosition start_position;
  std::int64_t taken = 0;
  std::int64_t batches_of_stretch = 0;
  std::vector<std::int64_t> good_of_segment;  // of each component
  ComponentCounts counts;
  SkipList skip_list;
  std::vector<std::vector<PreparedSample>> rows;  // of each component
  std::vector<std::int64_t> filled;
  std::int64_t bytes_of_batches = 0;
  bool size_told = false;
  WaitPolicy wait_policy;

  std::shared_ptr<SampleFetcher> maker;
  std::unique_ptr<OrderedWorkers<FetchedSample>> samples;
  std::unique_ptr<OrderedWorkers<ReadyBatches>> batches;
};

Loader::Loader(std::shared_ptr<const Source> source, std::shared_ptr<const Tokenizer> tokenizer,
               const Preprocessing& preprocessing, const LoaderSettings& settings, const Needs& needs,
               std::uint64_t seed, const RankSlice& shard, const LoaderTarget& target)
    : impl_(std::make_unique<Impl>(std::move(source), tokenizer, preprocessing, settings, needs, seed, shard, target)) {
}

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
  impl_->last_stretch = ready.segment.number;
  impl_->last_part = impl_->components > 1 ? impl_->next_lane : ready.segment.part;
  if (++impl_->next_lane == impl_->components) {
    impl_->next_lane = 0;
    impl_->position = ready.end;
    ready.batches.clear();
    ready.claim = {};
  }
  return batch;
}

std::int64_t Loader::epoch() const {
  return impl_->last_epoch;
}

std::int64_t Loader::segment() const {
  return impl_->last_stretch;
}

std::string Loader::source_label() const {
  return impl_->last_part < 0 ? "" : impl_->order->parts()[static_cast<std::size_t>(impl_->last_part)].label;
}

std::int64_t Loader::batches_per_update() const {
  return impl_->components;
}

DataPosition Loader::position() const {
  const DataPosition shared = impl_->order->to_shared(impl_->position);
  return {shared.epoch, shared.cursor * impl_->components + impl_->next_lane};
}

void Loader::seek(const DataPosition& position) {
  const std::int64_t components = impl_->components, entries = impl_->order->shared_places() * components;
  if (position.epoch < 0 || position.cursor < 0 || position.cursor > entries)
    user_error("the saved data position is sample ", position.cursor, " of epoch ", position.epoch, ", but ",
               impl_->source->describe(),
               ": the data has changed since; start a new run, or give the data it was saved with");
  impl_->stop();
  impl_->ready = {};
  impl_->next_lane = position.cursor % components;
  impl_->position = impl_->normalized(impl_->order->to_own({position.epoch, position.cursor / components}));
}

std::int64_t Loader::batches_per_epoch() const {
  std::int64_t batches = 0;
  for (const Segment& segment : impl_->order->segments(0))
    batches += (segment.end - segment.begin) / impl_->settings.batch_size;
  return batches * impl_->components;
}

LoaderStatistics Loader::statistics() const {
  LoaderStatistics out = impl_->statistics;
  out.work_seconds = 1e-9 * static_cast<double>(impl_->work->nanoseconds);
  out.cpu_seconds = 1e-9 * static_cast<double>(impl_->work->cpu_nanoseconds);
  out.retries = impl_->work->retries;
  out.peak_bytes = std::max(impl_->peak_bytes, impl_->maker ? impl_->maker->budget().peak() : 0);
  return out;
}

}  // namespace tessera
