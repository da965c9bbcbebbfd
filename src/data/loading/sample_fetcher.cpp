#include "src/data/loading/sample_fetcher.h"

#include <algorithm>

#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/data/stream.h>

namespace tessera {
namespace {

constexpr std::int64_t kRetriesTold = 10;
constexpr std::int64_t kMiB = 1 << 20;

}  // namespace

SampleFetcher::SampleFetcher(Stages stages, const LoaderSettings& settings, std::int64_t batches_of_run, const DataPosition& start)
    : stages_(std::move(stages)),
      max_pixels_(settings.max_pixels),
      batch_size_(settings.batch_size),
      resolution_(settings.resolution),
      batches_of_run_(batches_of_run),
      start_(start),
      batches_per_update_(stages_.sampler->batches_per_update()),
      budget_(std::make_shared<MemoryBudget>(settings.prefetch_mb * kMiB)),
      // An epoch may have more or fewer places than samples. At most half an epoch, because the sampler keeps the permutations of two.
      ahead_(stages_.source->read_ahead() == 0
                 ? -1
                 : batches_per_update_ * std::min(stages_.source->read_ahead() * stages_.sampler->places() / stages_.source->size(),
                                                  stages_.sampler->places() / 2)),
      jobs_(static_cast<std::size_t>(settings.threads)) {}

DataPosition SampleFetcher::place_of(std::int64_t ticket) const {
  const std::int64_t entries = start_.cursor + ticket / batches_per_update_;
  return {start_.epoch + entries / stages_.sampler->places(), entries % stages_.sampler->places()};
}

// The result depends only on the batch that contains `place`. It does not depend on the number of ranks, on resumes, or on how far the
// threads have read ahead.
std::int64_t SampleFetcher::max_patches_at(const DataPosition& place) const {
  if (batches_of_run_ == 0) return 0;
  const std::int64_t batches = place.epoch * (stages_.sampler->places() / batch_size_) + place.cursor / batch_size_;
  const double share = static_cast<double>(batches) / static_cast<double>(batches_of_run_);
  const auto part = std::ranges::find_if(resolution_, [&](const ResolutionStep& step) { return share < step.until; });
  return part == resolution_.end() ? 0 : part->max_patches;
}

// Tells the source of the samples up to `ahead_` tickets after this one, so that it fetches them before they are read.
void SampleFetcher::announce(std::int64_t ticket) {
  if (ahead_ < 0) return;
  const std::lock_guard lock(announcing_);
  for (; announced_ <= ticket + ahead_; ++announced_) {
    const DataPosition place = place_of(announced_);
    if (is_left_out(stages_.sampler->segment_of(place).number)) continue;
    const std::int64_t index = stages_.sampler->at(place, announced_ % batches_per_update_).index;
    stages_.source->will_read(stages_.entries ? stages_.entries->at(index).index : index);
  }
}

PreparedSample SampleFetcher::fetch(std::int64_t ticket, std::int64_t thread) {
  announce(ticket);
  const DataPosition place = place_of(ticket);
  if (is_left_out(stages_.sampler->segment_of(place).number)) {
    stages_.reader->pass(ticket);
    return {};
  }
  const SampleRef next = stages_.sampler->at(place, ticket % batches_per_update_);
  CaptionEntries::Pair pair{next.index, -1};
  if (stages_.entries) pair = stages_.entries->at(next.index);
  PreparedSample out;
  out.key = concat("number ", pair.index);
  try {
    enter(ticket, thread, stages_.source->name_of(pair.index), "is reading it");
    Sample sample = stages_.reader->read(ticket, place, pair.index, pause_in(ticket, thread, pair.index));
    if (stages_.balance && !stages_.balance->keeps(sample, pair.index, next.repeat)) {
      out.left_out = true;
      return out;
    }
    enter(ticket, thread, "sample " + sample.key, "waits for memory");
    MemoryBudget::Claim claim = budget_->claim_sample(ticket, working_bytes(sample, max_pixels_));
    enter(ticket, thread, "sample " + sample.key, "is decoding it");
    {
      const WorkTime time(*stages_.work);
      out = stages_.transform->prepare(std::move(sample), {next.index, next.repeat, pair.caption, max_patches_at(place)});
    }
    claim.set(out.bytes());
    out.claim = std::move(claim);
  } catch (const SampleError& error) {
    out.reject(error);
  }
  out.component = next.component;
  return out;
}

Pause SampleFetcher::pause_in(std::int64_t ticket, std::int64_t thread, std::int64_t index) {
  return [this, ticket, thread, index](double seconds, const std::string& what) {
    if (++stages_.work->retries <= kRetriesTold)
      log::warning("data: ", what, "; trying again in ", seconds, " s",
                   stages_.work->retries == kRetriesTold ? "; further failures are only counted" : "");
    enter(ticket, thread, stages_.source->name_of(index), concat("tries again, after: ", what));
    std::unique_lock lock(mutex_);
    if (stopping_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return stopped_; })) throw Stopped();
  };
}

void SampleFetcher::enter(std::int64_t ticket, std::int64_t thread, std::string sample, std::string doing) {
  const std::lock_guard lock(mutex_);
  jobs_[static_cast<std::size_t>(thread)] = {ticket, std::move(sample), std::move(doing)};
}

std::string SampleFetcher::describe(std::int64_t ticket) const {
  const std::lock_guard lock(mutex_);
  // A resumed run reads an epoch's stream from its start up to the first sample.
  const std::int64_t passed = ticket == 0 ? passed_over() : 0;
  const std::string before = passed > 0 ? concat(", after ", passed, " samples that the run had already used") : "";
  for (std::size_t thread = 0; thread < jobs_.size(); ++thread)
    if (jobs_[thread].ticket == ticket)
      return concat(jobs_[thread].sample, " (thread ", thread, " ", jobs_[thread].doing, before, ")");
  return "a sample that no thread has started";
}

void SampleFetcher::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  stopping_.notify_all();
  budget_->stop();
  stages_.reader->stop();
}

}  // namespace tessera
