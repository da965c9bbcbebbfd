#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <string>

#include "src/data/loading/memory_budget.h"
#include <tessera/data/loading/loader.h>
#include <tessera/data/source.h>

namespace tessera {

/// The wall-clock time and the CPU time that threads spend working.
struct WorkTotals {
  std::atomic<std::int64_t> nanoseconds = 0, cpu_nanoseconds = 0;
  std::atomic<std::int64_t> retries = 0;  // number of reads that failed and were repeated
};

/// Adds the time from its construction to its destruction to the totals. Must be destroyed on the thread that constructed it.
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

/// What every result of reading a sample has: the sample's key and, if the sample is bad, the reason.
struct SampleOutcome {
  std::string key;
  std::string bad_reason;  // empty if the sample is good
  std::string bad_text;
  MemoryBudget::Claim claim;

  bool good() const { return bad_reason.empty(); }
  void reject(const SampleError& error);
};

/// Estimates the bytes that a sample takes while it is prepared: its file and the image twice (as the decoder returns it, and
/// in our byte order).
std::int64_t working_bytes(const Sample& sample, std::int64_t max_pixels = LoaderSettings().max_pixels);

/// A function that is called between two attempts, with the seconds to wait and the error message.
using Pause = std::function<void(double seconds, const std::string& what)>;

/// Logs the error and waits.
void pause_and_tell(double seconds, const std::string& what);

/// Reads samples from any kind of source. Several threads may read at the same time. Reads are numbered 0, 1, 2, ...; the number of a read
/// is its ticket. For every ticket, either read() or pass() must be called exactly once.
class SampleReader {
 public:
  virtual ~SampleReader() = default;
  /// Returns the sample of a ticket. A source with random access returns sample `index`. A stream returns the sample at `place` in
  /// its order; places must increase with the tickets. Throws SampleError if the sample is bad. If the source fails, throws
  /// SampleError `io_error` if on_failure is skip, otherwise UserError. Throws Stopped after stop(), and passes on what `pause` throws.
  virtual Sample read(std::int64_t ticket, const DataPosition& place, std::int64_t index, const Pause& pause) = 0;
  /// Skips the sample of a ticket.
  virtual void pass(std::int64_t ticket) = 0;
  /// Returns the number of samples that a stream has read only to reach a later place. Thread-safe.
  virtual std::int64_t passed_over() const { return 0; }
  /// Wakes the threads that wait in read(). Their calls throw Stopped.
  virtual void stop() = 0;

  /// Returns sample `index`. All calls together read the source once, from front to back, so indices must increase with the tickets.
  Sample read_in_order(std::int64_t ticket, std::int64_t index) {
    return read(ticket, {0, index}, index, pause_and_tell);
  }
};

/// Makes a reader for training. Reads that fail are repeated according to the settings `retries`, `retry_seconds` and
/// `on_failure`. A stream has its own retries, and shuffles its samples itself as `shuffle`, `seed` and `slice` specify. `work`
/// sums up the time of reads from random-access sources. Throws UserError if a stream has fewer files than there are ranks.
std::shared_ptr<SampleReader> make_sample_reader(const std::shared_ptr<const Source>& source,
                                                 const LoaderSettings& settings, std::uint64_t seed,
                                                 const RankSlice& slice, std::shared_ptr<WorkTotals> work);

/// Makes a reader for one pass over the source in its own order.
std::shared_ptr<SampleReader> make_ordered_reader(const std::shared_ptr<const Source>& source,
                                                  LoaderSettings settings = {});
/// Returns a pointer to a source that somebody else owns.
inline std::shared_ptr<const Source> borrowed(const Source& source) { return {std::shared_ptr<const void>(), &source}; }

}  // namespace tessera
