#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>

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

}  // namespace tessera
