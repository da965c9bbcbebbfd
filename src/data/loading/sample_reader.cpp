#include "src/data/loading/sample_reader.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <stop_token>
#include <thread>

#include "src/data/image/image_file.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/data/stream.h>

namespace tessera {
namespace {

/// Reads a source with random access, and retries if it fails.
class IndexedReader : public SampleReader {
 public:
  IndexedReader(std::shared_ptr<const IndexedSource> source, const LoaderSettings& settings,
                std::shared_ptr<WorkTotals> work)
      : source_(std::move(source)), settings_(settings), work_(std::move(work)) {}

  Sample read(std::int64_t /*ticket*/, const DataPosition& /*place*/, std::int64_t index, const Pause& pause) override {
    const WorkTime time(*work_);
    double seconds = settings_.retry_seconds;
    for (std::int64_t attempt = 1;; ++attempt, seconds *= 2) {
      std::string what;
      try {
        return source_->get(index);
      } catch (const UserError& error) {
        what = error.what();
      }
      if (attempt > settings_.retries) {
        what += concat(" (", source_->name_of(index), "; tried ", attempt, attempt == 1 ? " time)" : " times)");
        if (settings_.on_failure == "skip") throw SampleError("io_error", what);
        throw UserError(what);
      }
      pause(seconds, what);
    }
  }

  void pass(std::int64_t /*ticket*/) override {}
  void stop() override {}

 private:
  const std::shared_ptr<const IndexedSource> source_;
  const LoaderSettings settings_;
  const std::shared_ptr<WorkTotals> work_;
};

/// Lets threads share a stream: they read its samples one at a time, in the order of the tickets, and decode them in parallel.
class StreamReader : public SampleReader {
 public:
  /// Throws UserError if there are fewer files than ranks.
  StreamReader(std::shared_ptr<const StreamSource> source, std::uint64_t seed, bool shuffle,
                             const RankSlice& slice)
      : source_(std::move(source)), seed_(seed), shuffle_(shuffle), slice_(slice) {
    if (source_->files() < slice.count)
      user_error(source_->describe(), ": ", source_->files(), " streams cannot be split over ", slice.count,
                 " processes: each needs at least one; write more shards, or use fewer processes");
  }

  /// Waits until all lower tickets are done, then returns the sample at `place`. Reads and discards the samples between the previous place
  /// and this one, or, for the first place of an epoch, those before it. If the stream throws, this and all later tickets throw the same
  /// exception. Throws Stopped after stop().
  Sample read(std::int64_t ticket, const DataPosition& place, std::int64_t /*index*/,
                            const Pause& /*pause*/) override {
    std::function<Sample()> make;
    {
      std::unique_lock lock(mutex_);
      wait_for_turn(lock, ticket);
      lock.unlock();  // safe without the lock, because the other threads wait for their turn
      std::exception_ptr failure;
      try {
        make = read_bytes(place);
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      failure_ = failure;
      ++turn_;
    }
    turns_.notify_all();
    if (!make) {
      const std::lock_guard lock(mutex_);
      std::rethrow_exception(failure_);
    }
    return make();
  }
  void pass(std::int64_t ticket) override {
    {
      std::unique_lock lock(mutex_);
      wait_for_turn(lock, ticket);
      ++turn_;
    }
    turns_.notify_all();
  }
  std::int64_t passed_over() const override { return passed_over_; }
  void stop() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_.request_stop();
    }
    turns_.notify_all();
  }

 private:
  void wait_for_turn(std::unique_lock<std::mutex>& lock, std::int64_t ticket) {
    turns_.wait(lock, [&] { return turn_ == ticket || failure_ || stopping_.stop_requested(); });
    if (stopping_.stop_requested()) throw Stopped();
    if (failure_) std::rethrow_exception(failure_);
  }

  std::function<Sample()> read_bytes(const DataPosition& place) {
    if (!stream_ || at_.epoch != place.epoch) {
      stream_ = source_->open({seed_, place.epoch, shuffle_, slice_, stopping_.get_token()});
      at_ = {place.epoch, 0};
    }
    for (; at_.cursor < place.cursor; ++at_.cursor) {
      stream_->next();
      ++passed_over_;
    }
    ++at_.cursor;
    return stream_->next();
  }

  const std::shared_ptr<const StreamSource> source_;
  const std::uint64_t seed_;
  const bool shuffle_;
  const RankSlice slice_;
  std::stop_source stopping_;
  std::atomic<std::int64_t> passed_over_ = 0;

  std::mutex mutex_;  // guards turn_ and failure_
  std::condition_variable turns_;
  std::int64_t turn_ = 0;
  std::exception_ptr failure_;

  // Used only by the thread whose turn it is.
  std::unique_ptr<SampleStream> stream_;
  DataPosition at_;
};

}  // namespace

std::int64_t working_bytes(const Sample& sample, std::int64_t max_pixels) {
  auto bytes = static_cast<std::int64_t>(sample.encoded.size() + sample.image.pixels.size() + sample.mask.size() +
                                         sizeof(float) * (sample.regions.size() + sample.depth.size()));
  if (sample.encoded.empty()) return bytes;
  const ImageHeader header = read_image_header(sample.encoded);
  // If an image has more than max_pixels, its pixels are not counted, because the decoder rejects the image before allocating memory.
  const std::int64_t pixels = header.height * header.width;
  return pixels > 0 && pixels <= max_pixels ? bytes + 6 * pixels : bytes;
}

void SampleOutcome::reject(const SampleError& error) {
  bad_reason = error.reason();
  bad_text = error.what();
  if (!error.key().empty()) key = error.key();
}

void pause_and_tell(double seconds, const std::string& what) {
  log::warning("data: ", what, "; trying again in ", seconds, " s");
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

std::shared_ptr<SampleReader> make_sample_reader(const std::shared_ptr<const Source>& source,
                                                 const LoaderSettings& settings, std::uint64_t seed,
                                                 const RankSlice& slice, std::shared_ptr<WorkTotals> work) {
  const SourceKind kind = source->kind();
  if (const auto* stream = std::get_if<const StreamSource*>(&kind))
    return std::make_shared<StreamReader>(std::shared_ptr<const StreamSource>(source, *stream), seed, settings.shuffle,
                                          slice);
  return std::make_shared<IndexedReader>(indexed(source), settings, std::move(work));
}

std::shared_ptr<SampleReader> make_ordered_reader(const std::shared_ptr<const Source>& source,
                                                  LoaderSettings settings) {
  settings.shuffle = false;
  return make_sample_reader(source, settings, 0, {}, std::make_shared<WorkTotals>());
}

}  // namespace tessera
