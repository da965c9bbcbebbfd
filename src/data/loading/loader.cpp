#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "src/data/loading/caption_entries.h"
#include "src/data/loading/collate.h"
#include "src/data/loading/ordered_workers.h"
#include "src/data/loading/sample_fetcher.h"
#include "src/data/loading/sample_transform.h"
#include "src/data/loading/sampler.h"
#include "src/data/loading/skip_log.h"
#include "src/data/loading/reported_samples.h"
#include "src/remote/store.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/data/loading/loader.h>
#include <tessera/data/mixing.h>
#include <tessera/data/stream.h>

namespace tessera {

TextCuts& TextCuts::operator+=(const TextCuts& more) {
  texts += more.texts;
  cut_texts += more.cut_texts;
  tokens += more.tokens;
  cut_tokens += more.cut_tokens;
  return *this;
}

TextCuts TextCuts::operator-(const TextCuts& before) const {
  return {texts - before.texts, cut_texts - before.cut_texts, tokens - before.tokens, cut_tokens - before.cut_tokens};
}

namespace {

constexpr std::int64_t kJudgedFrom = 100;  // the share of bad samples is checked once this many samples were seen

// Counts the good and bad samples of each component of the source, and throws an error when there are too many bad ones.
class ComponentCounts {
 public:
  // `share_setting` is the text that messages put before a value of max_bad_share, for example "--max-bad-share ".
  ComponentCounts(std::vector<SourceComponent> components, const LoaderSettings& settings, std::vector<std::string> needed,
                  std::string share_setting, const std::shared_ptr<ReportedSamples>& reported)
      : components_(std::move(components)),
        max_bad_share_(settings.max_bad_share),
        max_bad_run_(settings.max_bad_run),
        share_setting_(std::move(share_setting)),
        needed_(std::move(needed)) {
    for (const SourceComponent& component : components_) counts_.push_back({.skips = SkipLog(component.described, reported)});
  }

  void good(std::int64_t component) {
    Count& count = counts_[static_cast<std::size_t>(component)];
    ++count.good;
    if (count.run.length > 0) count.run = {};
  }
  // Counts a bad sample. Throws UserError if the share of bad samples is then above max_bad_share, or if the last max_bad_run samples
  // were bad.
  void bad(std::int64_t component, const PreparedSample& sample) {
    Count& count = counts_[static_cast<std::size_t>(component)];
    count.skips.note(sample.bad_reason, sample.bad_text);
    if (count.run.length++ == 0) count.run.first = sample.bad_text;
    ++count.run.reasons[sample.bad_reason];
    count.run.fields.insert(sample.found.begin(), sample.found.end());
    const SourceComponent& of = components_[static_cast<std::size_t>(component)];
    check_share(of, count);
    check_run(of, count);
  }

  // For each component that skipped samples since the last report, logs how many it has skipped up to the end of this epoch.
  void report(std::int64_t epoch) {
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      const SkipLog& skips = counts_[i].skips;
      if (skips.total() == counts_[i].reported) continue;
      counts_[i].reported = skips.total();
      log::info("data: ", components_[i].label.empty() ? "" : components_[i].label + ": ", "up to the end of epoch ",
                epoch, " ", with_thousands(skips.total()), " of ", with_thousands(skips.total() + counts_[i].good),
                " samples were skipped: ", describe_counts(skips.counts()));
    }
  }
  // Describes the skipped samples of one component or of all (-1): "3 bad_image; the first: ...".
  std::string describe(std::int64_t component) const {
    std::map<std::string, std::int64_t> skipped;
    std::string first;
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      if (component >= 0 && static_cast<std::size_t>(component) != i) continue;
      for (const auto& [reason, count] : counts_[i].skips.counts()) skipped[reason] += count;
      if (first.empty()) first = counts_[i].skips.first();
    }
    return concat(describe_counts(skipped), "; the first: ", first);
  }

 private:
  struct Run {  // of consecutive bad samples
    std::int64_t length = 0;
    std::map<std::string, std::int64_t> reasons;
    std::set<std::string> fields;
    std::string first;
  };
  struct Count {
    std::int64_t good = 0;
    SkipLog skips;
    std::int64_t reported = 0;
    Run run = {};
  };
  void check_share(const SourceComponent& component, const Count& count) const {
    const std::int64_t bad = count.skips.total(), seen = count.good + bad;
    if (seen < kJudgedFrom || static_cast<double>(bad) <= max_bad_share_ * static_cast<double>(seen)) return;
    user_error(component.described, ": ", bad, " of the first ", seen, " samples cannot be used (",
               describe_counts(count.skips.counts()), "), ",
               describe_bad_share(max_bad_share_, bad, seen, share_setting_),
               count.good == 0 ? "; " + describe_fields(count.run.fields, needed_, component) : "",
               "; the first: ", count.skips.first());
  }
  void check_run(const SourceComponent& component, const Count& count) const {
    if (count.run.length < max_bad_run_) return;
    user_error(component.described, ": ", count.run.length, " samples in a row cannot be used (", describe_counts(count.run.reasons),
               "), as many as max_bad_run allows; ", describe_fields(count.run.fields, needed_, component),
               "; the first: ", count.run.first);
  }

  std::vector<SourceComponent> components_;
  double max_bad_share_;
  std::int64_t max_bad_run_;
  std::string share_setting_;
  std::vector<std::string> needed_;
  std::vector<Count> counts_;
};

/// The batches of one update.
struct ReadyBatches {
  std::vector<Batch> batches;
  std::int64_t epoch = 0;
  Segment segment;
  DataPosition end;                             // where the next batches start
  std::int64_t left_out = 0;                    // samples that concept balance left out meanwhile
  std::map<std::string, std::int64_t> skipped;  // samples skipped while filling the batches
  std::map<std::string, TextCuts> cuts;         // how many of the batches' texts and tokens were cut off
  MemoryBudget::Claim claim;
};

std::shared_ptr<const CaptionEntries> entries_of(const std::shared_ptr<const Source>& source,
                                                 const LoaderSettings& settings) {
  if (settings.caption_choice != "all") return nullptr;
  return std::make_shared<CaptionEntries>(indexed(source), settings);
}

std::shared_ptr<const SampleTransform> checked_transform(const std::shared_ptr<const Source>& source,
                                                         const std::shared_ptr<const Tokenizer>& tokenizer,
                                                         const Preprocessing& preprocessing, const LoaderSettings& settings,
                                                         const Needs& needs, std::uint64_t seed, const LoaderTarget& target) {
  TORCH_CHECK(source != nullptr, "Loader: no source");
  auto out = std::make_shared<SampleTransform>(tokenizer, preprocessing, settings, needs, seed, target);
  check_fields(source, out, settings);
  return out;
}

// Returns null if the source has random access.
const StreamSource* stream_of(const Source& source) {
  const SourceKind kind = source.kind();
  const auto* stream = std::get_if<const StreamSource*>(&kind);
  return stream != nullptr ? *stream : nullptr;
}

// Returns the component's groups. Their starts are indices of entries if `entries` is not null, otherwise of samples.
EntryGroups groups_of(const SourceComponent& component, const CaptionEntries* entries) {
  EntryGroups out{component.source->group_starts(), component.source->open_groups()};
  if (entries != nullptr)
    for (std::int64_t& start : out.starts) start = entries->first_of(component.first + start) - entries->first_of(component.first);
  return out;
}

// Returns the sampler of a source. It does not shuffle a stream, because a stream orders its samples itself.
std::shared_ptr<Sampler> sampler_of(const Source& source, const CaptionEntries* entries, bool shuffle,
                                    std::uint64_t seed, const RankSlice& slice) {
  Mixing mixing = source.mixing();
  std::vector<EntryGroups> groups;
  for (const SourceComponent& component : mixing.components) groups.push_back(groups_of(component, entries));
  if (entries != nullptr) mixing.components = entries->counted(std::move(mixing.components));
  return std::make_shared<Sampler>(std::move(mixing), shuffle && stream_of(source) == nullptr, seed, slice, std::move(groups));
}

std::int64_t batches_in_epoch(const Sampler& sampler, std::int64_t batch_size) {
  std::int64_t batches = 0;
  for (const Segment& segment : sampler.segments(0)) batches += (segment.end - segment.begin) / batch_size;
  return batches * sampler.batches_per_update();
}

}  // namespace

EpochLength epoch_length(const std::shared_ptr<const Source>& source, const LoaderSettings& settings, int ranks) {
  const auto sampler =
      sampler_of(*source, entries_of(source, settings).get(), settings.shuffle, /*seed=*/0, RankSlice{0, ranks});
  return {batches_in_epoch(*sampler, settings.batch_size), sampler->batches_per_update()};
}

// All positions in this struct count only this rank's samples.
struct Loader::Impl {
  Impl(std::shared_ptr<const Source> given_source, const std::shared_ptr<const Tokenizer>& tokenizer,
       const Preprocessing& preprocessing, const LoaderSettings& given_settings, const Needs& needs,
       std::uint64_t given_seed, const RankSlice& given_slice, const LoaderTarget& target)
      : source(std::move(given_source)),
        seed(given_seed),
        slice(given_slice),
        settings(given_settings),
        batches_of_run(target.batches_of_run),
        collator(tokenizer, ImageViews(preprocessing, settings, needs, seed).sizes(),
                 keeps_shapes(preprocessing) ? preprocessing.patch_size : std::nullopt, needs, target),
        transform(checked_transform(source, tokenizer, preprocessing, settings, needs, seed, target)),
        entries(entries_of(source, settings)),
        balance(settings.balance ? std::make_shared<ConceptBalance>(*settings.balance, seed) : nullptr),
        sampler(sampler_of(*source, entries.get(), settings.shuffle, seed, slice)),
        per_update(sampler->batches_per_update()),
        counts(sampler->components(), settings, needed_fields(needs), target.share_setting, target.reported),
        skip_list(target.skipped_file, settings.skipped_list) {
    check_sizes();
    for (std::size_t i = 1; i < settings.resolution.size(); ++i)
      if (const double until = settings.resolution[i].until, before = settings.resolution[i - 1].until; until <= before)
        user_error("data.loader.resolution[", i, "].until is ", until, ", not above ", before,
                   " of the step before it: the shares must increase");
    if (!settings.resolution.empty() && !keeps_shapes(preprocessing))
      user_error("data.loader.resolution: all images of this model have one size: set model.preprocessing.resize_mode to naflex, "
                 "or remove this setting");
    announce_stream();
  }

  ~Impl() { stop(); }

  // Throws UserError unless every segment holds at least one batch. With `accumulate`, every component must hold one, too.
  void check_sizes() const {
    const auto check = [&](std::int64_t size, const std::string& described) {
      if (size >= settings.batch_size) return;
      user_error(described, ": fewer samples than one batch of ", settings.batch_size,
                 slice.count > 1 ? concat(" for each of ", slice.count, " processes") : "",
                 size > 0 ? concat(": set batch_size to ", size, " or less") : ": use fewer processes");
    };
    if (per_update > 1)
      for (const SourceComponent& component : sampler->components())
        check(component.size / slice.count, component.described);
    for (const Segment& segment : sampler->segments(0))
      check(segment.end - segment.begin, described(segment.component));
  }

  void announce_stream() const {
    make_reader();  // throws for a stream with too few files
    const StreamSource* stream = stream_of(*source);
    if (stream != nullptr && slice.index == 0) log::info("data: ", stream->describe_order());
  }

  std::shared_ptr<SampleReader> make_reader() const { return make_sample_reader(source, settings, seed, slice, work); }

  // Describes a component of the source, or the whole source (-1).
  std::string described(std::int64_t component) const {
    return component < 0 ? source->describe() : sampler->components()[static_cast<std::size_t>(component)].described;
  }

  // Stops the sample threads first; otherwise the collating thread would wait for them forever.
  void stop() {
    if (!fetcher) return;
    fetcher->stop();
    samples->stop();
    batches.reset();
    samples.reset();
    peak_bytes = std::max(peak_bytes, fetcher->budget().peak());
    fetcher.reset();
  }

  void start() {
    start_position = normalized(position);
    taken = 0;
    batches_of_segment = used_of_epoch = left_out_of_epoch = 0;
    good_of_segment.assign(static_cast<std::size_t>(per_update), 0);
    rows.clear();
    rows.resize(static_cast<std::size_t>(per_update));
    for (auto& row : rows) row.resize(static_cast<std::size_t>(settings.batch_size));
    filled.assign(static_cast<std::size_t>(per_update), 0);
    fetcher = std::make_shared<SampleFetcher>(
        SampleFetcher::Stages{sampler, entries, source, make_reader(), balance, transform, work}, settings, batches_of_run, start_position);
    fetcher->leave_out(sampler->segment_of(start_position).number - 1);
    wait_policy = {settings.warn_after, settings.timeout, source->describe(),
                   [fetcher = fetcher](std::int64_t ticket) { return fetcher->describe(ticket); },
                   [fetcher = fetcher] { return fetcher->passed_over(); }};
    samples = std::make_unique<OrderedWorkers<PreparedSample>>(
        settings.threads, 4 * settings.threads, -1,
        [fetcher = fetcher](std::int64_t ticket, std::int64_t thread) { return fetcher->fetch(ticket, thread); });
    samples->abandon_after(kAbandonAfter);
    const std::int64_t ahead = (settings.prefetch + per_update - 1) / per_update;
    batches = std::make_unique<OrderedWorkers<ReadyBatches>>(
        1, ahead, -1, [this](std::int64_t, std::int64_t) { return make_batches(); });
  }

  // Skips the rest of a segment if it cannot fill a batch.
  DataPosition normalized(DataPosition place) const {
    while (true) {
      if (place.cursor >= sampler->places()) place = {place.epoch + 1, 0};
      const Segment segment = sampler->segment_of(place);
      if (segment.end - place.cursor >= settings.batch_size) return place;
      place.cursor = segment.end;
    }
  }

  // Waits for the batches of the next update, unless they are already here.
  void make_ready() {
    const auto begin = std::chrono::steady_clock::now();
    if (!batches) start();
    if (ready.batches.empty()) ready = batches->take();
    statistics.wait_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  ReadyBatches make_batches() {
    // Waits until the memory budget has room for twice the bytes of an update's batches, because the samples stay in memory while
    // batches are made from them.
    fetcher->budget().wait_for_batch(2 * bytes_of_batches);
    ReadyBatches out;
    std::fill(filled.begin(), filled.end(), 0);
    for (bool complete = false; !complete;) {
      const DataPosition place = fetcher->place_of(taken);
      out.segment = sampler->segment_of(place);
      if (place.cursor == out.segment.begin) {
        std::fill(filled.begin(), filled.end(), 0);
        std::fill(good_of_segment.begin(), good_of_segment.end(), 0);
        batches_of_segment = 0;
      }
      const bool left_out = fetcher->is_left_out(out.segment.number);
      for (std::int64_t batch = 0; batch < per_update; ++batch, ++taken) {
        fetcher->budget().set_due(taken);
        PreparedSample sample = samples->take(&wait_policy);
        if (!left_out) accept(std::move(sample), static_cast<std::size_t>(batch), place.epoch, out);
      }
      out.end = {place.epoch, place.cursor + 1};
      const std::int64_t least = *std::min_element(filled.begin(), filled.end());
      complete = !left_out && least == settings.batch_size;
      if (!left_out && least + out.segment.end - out.end.cursor < settings.batch_size) end_segment(out.segment);
    }
    ++batches_of_segment;
    out.epoch = out.end.epoch;
    out.end = normalized(out.end);
    if (sampler->segment_of(out.end).number != out.segment.number) {
      fetcher->leave_out(out.segment.number);
      report_epoch(out.segment);
    }
    collate(out);
    return out;
  }

  void collate(ReadyBatches& out) {
    bytes_of_batches = 0;
    for (std::vector<PreparedSample>& row : rows) {
      for (const PreparedSample& sample : row)
        for (const auto& [view, cuts] : sample.cuts) out.cuts[view] += cuts;
      out.batches.push_back(collator.collate(row));
      bytes_of_batches += bytes_of(out.batches.back());
      for (PreparedSample& sample : row) sample = {};
    }
    out.claim = fetcher->budget().claim_batch(bytes_of_batches);
    if (!std::exchange(size_reported, true) && 2 * bytes_of_batches > settings.prefetch_mb << 20)
      log::warning("data: prefetch_mb ", settings.prefetch_mb, " is less than two batches, which take ",
                   format_bytes(2 * static_cast<double>(bytes_of_batches)), ": no batch is made while another is ready");
  }

  // A full batch drops further samples until the update's other batches are full, too, because all batches of an update share one cursor.
  void accept(PreparedSample&& sample, std::size_t batch, std::int64_t epoch, ReadyBatches& out) {
    if (sample.left_out) {
      ++out.left_out;
      ++left_out_of_epoch;
      return;
    }
    ++used_of_epoch;
    if (sample.good()) {
      counts.good(sample.component);
      ++good_of_segment[batch];
      if (filled[batch] < settings.batch_size)
        rows[batch][static_cast<std::size_t>(filled[batch]++)] = std::move(sample);
      return;
    }
    ++out.skipped[sample.bad_reason];
    skip_list.note(epoch, sample.key, sample.bad_reason, sample.bad_text);
    counts.bad(sample.component, sample);
  }

  // Ends a segment that has too few samples left to fill the batch. The fetcher need not read the rest.
  void end_segment(const Segment& ended) {
    fetcher->leave_out(ended.number);
    report_epoch(ended);
    const bool from_its_start =
        sampler->segment_of(start_position).number != ended.number || start_position.cursor == ended.begin;
    if (batches_of_segment > 0 || !from_its_start) return;
    const auto fewest = std::min_element(good_of_segment.begin(), good_of_segment.end());
    const std::int64_t component = per_update > 1 ? fewest - good_of_segment.begin() : ended.component;
    user_error(described(component), ": returned only ", *fewest, balance ? " samples that data.loader.balance keeps" : " readable samples",
               ", fewer than one batch of ", settings.batch_size, "; skipped: ", counts.describe(component));
  }

  void report_epoch(const Segment& ended) {
    const std::int64_t epoch = fetcher->place_of(taken - 1).epoch;
    if (ended.number != sampler->segments(epoch).back().number) return;
    counts.report(epoch);
    if (balance)
      log::info("data: epoch ", epoch, ": data.loader.balance kept ", with_thousands(used_of_epoch), " of ",
                with_thousands(used_of_epoch + left_out_of_epoch), " samples");
    used_of_epoch = left_out_of_epoch = 0;
  }

  const std::shared_ptr<const Source> source;
  const std::uint64_t seed;
  const RankSlice slice;
  const LoaderSettings settings;
  const std::int64_t batches_of_run;
  const Collator collator;
  const std::shared_ptr<const SampleTransform> transform;
  const std::shared_ptr<const CaptionEntries> entries;
  const std::shared_ptr<const ConceptBalance> balance;
  const std::shared_ptr<Sampler> sampler;
  const std::int64_t per_update;  // batches per update
  const std::shared_ptr<WorkTotals> work = std::make_shared<WorkTotals>();

  // Used by the caller's thread.
  DataPosition position;  // position of the update whose batches next() is returning
  std::int64_t next_of_update = 0;
  ReadyBatches ready;                                                  // this update's batches that are not returned yet
  std::int64_t last_epoch = 0, last_segment = 0, last_component = -1;  // where the last returned batch came from
  LoaderStatistics statistics;
  std::int64_t peak_bytes = 0;  // peak memory before the last seek

  // Used by the collating thread.
  DataPosition start_position;
  std::int64_t taken = 0;
  std::int64_t batches_of_segment = 0;
  std::int64_t used_of_epoch = 0, left_out_of_epoch = 0;  // samples that concept balance kept and left out since the epoch or the run began
  std::vector<std::int64_t> good_of_segment;  // number of good samples in the segment, for each batch of an update
  ComponentCounts counts;
  SkipList skip_list;
  std::vector<std::vector<PreparedSample>> rows;  // samples of each batch of an update
  std::vector<std::int64_t> filled;
  std::int64_t bytes_of_batches = 0;
  bool size_reported = false;
  WaitPolicy wait_policy;

  std::shared_ptr<SampleFetcher> fetcher;
  std::unique_ptr<OrderedWorkers<PreparedSample>> samples;
  std::unique_ptr<OrderedWorkers<ReadyBatches>> batches;
};

Loader::Loader(std::shared_ptr<const Source> source, std::shared_ptr<const Tokenizer> tokenizer,
               const Preprocessing& preprocessing, const LoaderSettings& settings, const Needs& needs,
               std::uint64_t seed, const RankSlice& slice, const LoaderTarget& target)
    : impl_(std::make_unique<Impl>(std::move(source), tokenizer, preprocessing, settings, needs, seed, slice, target)) {
}

Loader::~Loader() = default;

Batch Loader::next() {
  impl_->make_ready();
  ReadyBatches& ready = impl_->ready;
  impl_->statistics.left_out += std::exchange(ready.left_out, 0);
  for (const auto& [reason, count] : std::exchange(ready.skipped, {})) impl_->statistics.skipped[reason] += count;
  for (const auto& [view, cuts] : std::exchange(ready.cuts, {})) impl_->statistics.cuts[view] += cuts;
  Batch batch = std::move(ready.batches[static_cast<std::size_t>(impl_->next_of_update)]);
  impl_->statistics.samples += batch.size();
  impl_->last_epoch = ready.epoch;
  impl_->last_segment = ready.segment.number;
  impl_->last_component = impl_->per_update > 1 ? impl_->next_of_update : ready.segment.component;
  if (++impl_->next_of_update == impl_->per_update) {
    impl_->next_of_update = 0;
    impl_->position = ready.end;
    ready.batches.clear();
    ready.claim = {};
  }
  return batch;
}

std::int64_t Loader::next_segment() {
  impl_->make_ready();
  impl_->ready.claim = {};  // the batch now belongs to the caller, so that the loader may prepare as many others as before
  return impl_->ready.segment.number;
}

std::int64_t Loader::epoch() const {
  return impl_->last_epoch;
}

std::int64_t Loader::segment() const {
  return impl_->last_segment;
}

std::string Loader::source_label() const {
  const std::int64_t last = impl_->last_component;
  return last < 0 ? "" : impl_->sampler->components()[static_cast<std::size_t>(last)].label;
}

std::int64_t Loader::batches_per_update() const {
  return impl_->per_update;
}

DataPosition Loader::position() const {
  const DataPosition shared = impl_->sampler->to_shared(impl_->position);
  return {shared.epoch, shared.cursor * impl_->per_update + impl_->next_of_update};
}

void Loader::seek(const DataPosition& position) {
  const std::int64_t per_update = impl_->per_update, entries = impl_->sampler->shared_places() * per_update;
  if (position.epoch < 0 || position.cursor < 0 || position.cursor > entries)
    user_error("the saved data position is sample ", position.cursor, " of epoch ", position.epoch, ", but ",
               impl_->source->describe(),
               ": the data has changed since; start a new run, or use the data it was saved with");
  impl_->stop();
  impl_->ready = {};
  impl_->next_of_update = position.cursor % per_update;
  // The position after an epoch's last batch is the start of the next epoch.
  impl_->last_epoch = position.cursor == 0 && position.epoch > 0 ? position.epoch - 1 : position.epoch;
  impl_->position = impl_->normalized(impl_->sampler->to_own({position.epoch, position.cursor / per_update}));
}

std::int64_t Loader::batches_per_epoch() const {
  return batches_in_epoch(*impl_->sampler, impl_->settings.batch_size);
}

LoaderStatistics Loader::statistics() const {
  LoaderStatistics out = impl_->statistics;
  out.work_seconds = 1e-9 * static_cast<double>(impl_->work->nanoseconds);
  out.cpu_seconds = 1e-9 * static_cast<double>(impl_->work->cpu_nanoseconds);
  out.retries = impl_->work->retries;
  const remote::RemoteCounts remote = remote::counts();
  out.fetched_bytes = remote.bytes;
  out.fetch_retries = remote.retries;
  out.cache_hits = remote.hits;
  out.cache_misses = remote.misses;
  out.peak_bytes = std::max(impl_->peak_bytes, impl_->fetcher ? impl_->fetcher->budget().peak() : 0);
  return out;
}

}  // namespace tessera
