#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "src/data/loading/caption_entries.h"
#include "src/data/loading/sampler.h"
#include "src/data/loading/memory_budget.h"
#include "src/data/loading/sample_transform.h"
#include "src/data/loading/stream_reader.h"
#include "src/data/loading/work_time.h"

namespace tessera {

/// About what a sample takes while it is made ready: its file, and the picture twice (as the decoder gives it, and in
/// our order of bytes).
std::int64_t working_bytes(const Sample& sample, std::int64_t max_pixels = LoaderSettings().max_pixels);

/// A sample made ready, and where it comes from.
struct FetchedSample {
  PreparedSample sample;
  std::int64_t part = 0;  // of the source
};

/// What the decoding threads of a loader do, from one seek to the next: ticket i is the sample of place i / components
/// behind the start and of component i % components. Kept alive by the threads, one of which may hang in a read when the loader
/// goes.
class SampleFetcher {
 public:
  struct Parts {
    std::shared_ptr<const Source> source;
    std::shared_ptr<const SampleTransform> transform;
    std::shared_ptr<Sampler> order;
    std::shared_ptr<const CaptionEntries> entries;  // null: the order's entries are samples
    std::shared_ptr<WorkTotals> work;
    std::shared_ptr<StreamReader> stream;  // null: the source has random access
  };
  SampleFetcher(Parts parts, const LoaderSettings& settings, const DataPosition& start);

  FetchedSample make(std::int64_t ticket, std::int64_t thread);

  DataPosition place_of(std::int64_t ticket) const;
  /// Samples up to the end of this segment need not be made any more.
  void leave_out(std::int64_t segment) { over_segment_ = segment; }
  bool is_left_out(std::int64_t segment) const { return segment <= over_segment_; }
  MemoryBudget& budget() { return *budget_; }
  /// "sample number 7 of x.tar (thread 2 is reading it)".
  std::string describe(std::int64_t ticket) const;
  /// Threads that wait throw Stopped.
  void stop();

 private:
  struct Job {
    std::int64_t ticket = -1;
    std::string sample;
    std::string doing;
  };
  Sample read(std::int64_t index, std::int64_t ticket, std::int64_t thread);
  void enter(std::int64_t ticket, std::int64_t thread, std::string sample, std::string doing);
  void pause(double seconds);

  const Parts parts_;
  const LoaderSettings settings_;
  const DataPosition start_;
  const std::int64_t components_;
  const std::shared_ptr<MemoryBudget> budget_;
  std::atomic<std::int64_t> over_segment_ = -1;

  mutable std::mutex mutex_;
  std::condition_variable stopping_;
  bool stopped_ = false;
  std::vector<Job> jobs_;  // of each thread
};

}  // namespace tessera
