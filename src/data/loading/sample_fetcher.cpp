#include "src/data/loading/sample_fetcher.h"

#include "src/data/image/image_file.h"
#include "src/data/loading/ordered_workers.h"
#include "src/data/loading/read_sample.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>

namespace tessera {
namespace {

constexpr std::int64_t kRetriesTold = 10;
constexpr std::int64_t kMiB = 1 << 20;

}  // namespace

// About what a sample takes while it is made ready: the file, and the picture twice (as the decoder gives it, and in
// our order of bytes).
std::int64_t working_bytes(const Sample& sample, std::int64_t max_pixels) {
  auto bytes = static_cast<std::int64_t>(sample.encoded.size() + sample.image.pixels.size() + sample.mask.size() +
                                         sizeof(float) * sample.regions.size());
  if (sample.encoded.empty()) return bytes;
  const ImageHeader header = read_image_header(sample.encoded);
  // Pictures beyond the decoder's limit are refused before any memory is taken.
  const std::int64_t pixels = header.height * header.width;
  return pixels > 0 && pixels <= max_pixels ? bytes + 6 * pixels : bytes;
}

SampleFetcher::SampleFetcher(Parts parts, const LoaderSettings& settings, const DataPosition& start)
    : parts_(std::move(parts)),
      settings_(settings),
      start_(start),
      components_(parts_.order->components()),
      budget_(std::make_shared<MemoryBudget>(settings.prefetch_mb * kMiB)),
      jobs_(static_cast<std::size_t>(settings.threads)) {}

DataPosition SampleFetcher::place_of(std::int64_t ticket) const {
  const std::int64_t entries = start_.cursor + ticket / components_;
  return {start_.epoch + entries / parts_.order->places(), entries % parts_.order->places()};
}

FetchedSample SampleFetcher::make(std::int64_t ticket, std::int64_t thread) {
  const DataPosition place = place_of(ticket);
  if (is_left_out(parts_.order->segment_of(place).number)) {
    if (parts_.stream) parts_.stream->pass(ticket);
    return {};
  }
  const SampleRef next = parts_.stream ? parts_.stream->entry(place) : parts_.order->at(place, ticket % components_);
  CaptionEntries::Pair pair{next.index, -1};
  if (parts_.entries) pair = parts_.entries->at(next.index);
  FetchedSample out{{}, next.part};
  out.sample.key = concat("number ", pair.index);
  try {
    enter(ticket, thread, parts_.source->name_of(pair.index), "is reading it");
    Sample sample = parts_.stream ? parts_.stream->take(ticket, place) : read(pair.index, ticket, thread);
    enter(ticket, thread, "sample " + sample.key, "waits for memory");
    MemoryBudget::Claim claim = budget_->claim_sample(ticket, working_bytes(sample, settings_.max_pixels));
    enter(ticket, thread, "sample " + sample.key, "is decoding it");
    {
      const WorkTime time(*parts_.work);
      out.sample = parts_.transform->prepare(std::move(sample), {next.index, next.repeat, pair.caption});
    }
    claim.set(out.sample.bytes());
    out.sample.claim = std::move(claim);
  } catch (const SampleError& error) {
    out.sample.reject(error);
  }
  return out;
}

Sample SampleFetcher::read(std::int64_t index, std::int64_t ticket, std::int64_t thread) {
  const WorkTime time(*parts_.work);
  return read_sample(*parts_.source, index, settings_, [&](double seconds, const std::string& what) {
    if (++parts_.work->retries <= kRetriesTold)
      log::warning("data: ", what, "; tried again in ", seconds, " s",
                   parts_.work->retries == kRetriesTold ? "; further failures are only counted" : "");
    enter(ticket, thread, parts_.source->name_of(index), concat("tries again, after: ", what));
    pause(seconds);
  });
}

void SampleFetcher::enter(std::int64_t ticket, std::int64_t thread, std::string sample, std::string doing) {
  const std::lock_guard lock(mutex_);
  jobs_[static_cast<std::size_t>(thread)] = {ticket, std::move(sample), std::move(doing)};
}

std::string SampleFetcher::describe(std::int64_t ticket) const {
  const std::lock_guard lock(mutex_);
  for (std::size_t thread = 0; thread < jobs_.size(); ++thread)
    if (jobs_[thread].ticket == ticket)
      return concat(jobs_[thread].sample, " (thread ", thread, " ", jobs_[thread].doing, ")");
  return "a sample that no thread has begun";
}

void SampleFetcher::pause(double seconds) {
  std::unique_lock lock(mutex_);
  if (stopping_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return stopped_; })) throw Stopped();
}

void SampleFetcher::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  stopping_.notify_all();
  budget_->stop();
  if (parts_.stream) parts_.stream->stop();
}

}  // namespace tessera
