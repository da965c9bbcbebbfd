#include <atomic>
#include <chrono>
#include <cstring>
#include <ctime>
#include <mutex>
#include <numeric>

#include <ATen/ATen.h>

#include "src/data/ordered_workers.h"
#include "src/data/prepare.h"
#include "src/data/skip_log.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/random.h>
#include <tessera/base/text.h>
#include <tessera/data/loader.h>

namespace tessera {
namespace {

constexpr std::int64_t kPatience = 100;  // samples before the share of bad ones is judged

/// The order of the samples in each epoch. Thread-safe.
class SampleOrder {
 public:
  SampleOrder(std::int64_t size, bool shuffle, std::uint64_t seed) : size_(size), shuffle_(shuffle), seed_(seed) {}

  std::int64_t at(const DataPosition& place) {
    if (!shuffle_) return place.cursor;
    std::lock_guard lock(mutex_);
    std::vector<std::int64_t>& order = orders_[place.epoch];
    if (order.empty()) {
      order.resize(static_cast<std::size_t>(size_));
      std::iota(order.begin(), order.end(), std::int64_t{0});
      Random(seed_, Purpose::shuffle, {static_cast<std::uint64_t>(place.epoch)}).shuffle(order);
      // The workers are at most at the border of two epochs.
      while (orders_.begin()->first + 1 < place.epoch) orders_.erase(orders_.begin());
    }
    return order[static_cast<std::size_t>(place.cursor)];
  }

 private:
  const std::int64_t size_;
  const bool shuffle_;
  const std::uint64_t seed_;
  std::mutex mutex_;
  std::map<std::int64_t, std::vector<std::int64_t>> orders_;
};

struct ReadyBatch {
  Batch batch;
  std::int64_t epoch = 0;
  DataPosition end;                             // where the next batch starts
  std::map<std::string, std::int64_t> skipped;  // on the way to this batch
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

struct Loader::Impl {
  Impl(std::shared_ptr<const Source> given_source, std::shared_ptr<const Tokenizer> given_tokenizer,
       const Preprocessing& given_preprocessing, const LoaderSettings& given_settings, const Needs& given_needs,
       std::uint64_t seed, const Shard& given_shard)
      : source(std::move(given_source)),
        tokenizer(std::move(given_tokenizer)),
        shard(given_shard),
        size(source->size() / shard.count),
        image_size(given_preprocessing.image_size),
        settings(given_settings),
        needs(given_needs),
        order(source->size(), settings.shuffle, seed),
        skips(source->describe()) {
    if (size < settings.batch_size)
      user_error(source->describe(), ": fewer samples than one batch of ", settings.batch_size,
                 shard.count > 1 ? concat(" for each of ", shard.count, " processes") : "", ": set batch_size to ",
                 size, " or less");
    preparer = std::make_unique<SamplePreparer>(source, tokenizer, given_preprocessing, settings, needs, seed);
  }

  ~Impl() { stop(); }

  void stop() {
    if (samples) samples->stop();  // first, or the collating thread would wait for ever
    batches.reset();
    samples.reset();
  }

  void start() {
    start_position = normalised(position);
    taken = 0;
    over_epoch = start_position.epoch - 1;
    batches_of_epoch = 0;
    good_of_epoch = 0;
    slots.assign(static_cast<std::size_t>(settings.batch_size), {});
    samples = std::make_unique<OrderedWorkers<PreparedSample>>(
        settings.threads, 4 * settings.threads, -1, [this](std::int64_t ticket) { return make_sample(ticket); });
    batches = std::make_unique<OrderedWorkers<ReadyBatch>>(1, settings.prefetch, -1,
                                                           [this](std::int64_t) { return make_batch(); });
  }

  // What is left of an epoch is skipped when it cannot fill a batch.
  DataPosition normalised(const DataPosition& place) const {
    return size - place.cursor < settings.batch_size ? DataPosition{place.epoch + 1, 0} : place;
  }

  DataPosition place_of(std::int64_t ticket) const {
    const std::int64_t entries = start_position.cursor + ticket;
    return {start_position.epoch + entries / size, entries % size};
  }

  PreparedSample make_sample(std::int64_t ticket) {
    const DataPosition place = place_of(ticket);
    if (place.epoch <= over_epoch) return {};  // will be left out
    const WorkTime time(work);
    return preparer->prepare(order.at({place.epoch, place.cursor * shard.count + shard.index}), place.epoch);
  }

  ReadyBatch make_batch() {
    ReadyBatch out;
    std::int64_t filled = 0;
    while (filled < settings.batch_size) {
      PreparedSample sample = samples->take();
      const DataPosition place = place_of(taken++);
      if (place.cursor == 0) {
        filled = 0;
        batches_of_epoch = 0;
        good_of_epoch = 0;
      }
      const bool left_out = place.epoch <= over_epoch;
      if (!left_out && sample.good()) {
        ++good;
        ++good_of_epoch;
        slots[static_cast<std::size_t>(filled++)] = std::move(sample);
      } else if (!left_out) {
        skips.note(sample.bad_reason, sample.bad_text);
        ++out.skipped[sample.bad_reason];
        check_share();
      }
      out.end = {place.epoch, place.cursor + 1};
      if (!left_out && filled < settings.batch_size && filled + size - out.end.cursor < settings.batch_size)
        end_epoch(place.epoch);
    }
    ++batches_of_epoch;
    out.epoch = out.end.epoch;
    out.end = normalised(out.end);
    if (out.end.cursor == 0) {
      over_epoch = out.end.epoch - 1;
      report_epoch(over_epoch);
    }
    out.batch = collate();
    return out;
  }

  // Too few are left to fill the batch. The flag spares the workers the rest.
  void end_epoch(std::int64_t ended) {
    over_epoch = ended;
    report_epoch(ended);
    const bool from_its_start = start_position.epoch != ended || start_position.cursor == 0;
    if (batches_of_epoch == 0 && from_its_start)
      user_error(source->describe(), ": gave only ", good_of_epoch, " readable samples, fewer than one batch of ",
                 settings.batch_size, "; skipped: ", describe_counts(skips.counts()), "; the first: ", skips.first());
  }

  void report_epoch(std::int64_t ended) {
    if (skips.total() == reported_skips) return;
    reported_skips = skips.total();
    log::info("data: up to the end of epoch ", ended, " ", with_thousands(skips.total()), " of ",
              with_thousands(skips.total() + good), " samples were skipped: ", describe_counts(skips.counts()));
  }

  void check_share() const {
    const std::int64_t seen = good + skips.total();
    if (seen < kPatience || static_cast<double>(skips.total()) <= settings.max_bad_share * static_cast<double>(seen))
      return;
    user_error(source->describe(), ": ", skips.total(), " of the first ", seen, " samples cannot be used (",
               describe_counts(skips.counts()), "), more than max_bad_share ", settings.max_bad_share,
               " allows; the first: ", skips.first());
  }

  // One copy of each sample into the batch's tensors.
  Batch collate() {
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
    for (std::size_t view = 0; view < needs.texts.size(); ++view) batch.texts[needs.texts[view]] = collate_texts(view);
    if (needs.regions) batch.regions = collate_regions(slots, batch.region_mask);
    batch.labels = at::empty({count}, at::kLong);
    for (std::size_t i = 0; i < slots.size(); ++i) {
      batch.labels.data_ptr<std::int64_t>()[i] = slots[i].label;
      batch.keys.push_back(std::move(slots[i].key));
    }
    return batch;
  }

  TextBatch collate_texts(std::size_t view) const {
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
  std::int64_t size;  // of the shard, and so are all positions in here
  config::Size image_size;
  LoaderSettings settings;
  Needs needs;
  SampleOrder order;
  std::unique_ptr<SamplePreparer> preparer;

  // The caller's side.
  DataPosition position;
  std::int64_t epoch = 0;
  LoaderStatistics statistics;

  // The collating thread's side.
  DataPosition start_position;
  std::int64_t taken = 0;
  std::int64_t good = 0;
  std::int64_t good_of_epoch = 0;
  std::int64_t batches_of_epoch = 0;
  std::int64_t reported_skips = 0;
  SkipLog skips;
  std::vector<PreparedSample> slots;
  std::atomic<std::int64_t> over_epoch = -1;  // no batch will be filled from what is left of this epoch

  WorkTotals work;

  std::unique_ptr<OrderedWorkers<PreparedSample>> samples;
  std::unique_ptr<OrderedWorkers<ReadyBatch>> batches;
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
  ReadyBatch ready = impl_->batches->take();
  impl_->statistics.wait_seconds += std::chrono::duration<double>(Clock::now() - begin).count();
  impl_->statistics.samples += ready.batch.size();
  for (const auto& [reason, count] : ready.skipped) impl_->statistics.skipped[reason] += count;
  impl_->position = ready.end;
  impl_->epoch = ready.epoch;
  return std::move(ready.batch);
}

std::int64_t Loader::epoch() const {
  return impl_->epoch;
}

DataPosition Loader::position() const {
  return {impl_->position.epoch, impl_->position.cursor * impl_->shard.count};
}

void Loader::seek(const DataPosition& position) {
  if (position.epoch < 0 || position.cursor < 0 || position.cursor > impl_->source->size())
    user_error("the saved data position is sample ", position.cursor, " of epoch ", position.epoch, ", but ",
               impl_->source->describe(),
               ": the data has changed since; start a new run, or give the data it was saved with");
  impl_->stop();
  // The first of the own entries at or behind the cursor.
  const auto [index, count] = impl_->shard;
  const std::int64_t own = (std::max<std::int64_t>(position.cursor - index, 0) + count - 1) / count;
  impl_->position = impl_->normalised({position.epoch, own});
}

std::int64_t Loader::batches_per_epoch() const {
  return impl_->size / impl_->settings.batch_size;
}

LoaderStatistics Loader::statistics() const {
  LoaderStatistics out = impl_->statistics;
  out.work_seconds = 1e-9 * static_cast<double>(impl_->work.nanoseconds);
  out.cpu_seconds = 1e-9 * static_cast<double>(impl_->work.cpu_nanoseconds);
  return out;
}

}  // namespace tessera
