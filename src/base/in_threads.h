#pragma once

#include <algorithm>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace tessera {

/// Calls work(0) .. work(count - 1) in at most `threads` threads. After an exception no further calls are started; when all threads have
/// ended, the exception of the call with the lowest index is rethrown.
template <class Work>
void for_each_in_threads(std::size_t count, std::size_t threads, const Work& work) {
  std::mutex mutex;  // guards the variables below
  std::size_t next = 0, failed = count;
  std::exception_ptr failure;
  const auto run = [&] {
    for (std::unique_lock lock(mutex); next < count && !failure;) {
      const std::size_t i = next++;
      lock.unlock();
      std::exception_ptr thrown;
      try {
        work(i);
      } catch (...) {
        thrown = std::current_exception();
      }
      lock.lock();
      if (!thrown || i > failed) continue;
      failure = thrown;
      failed = i;
    }
  };
  {
    std::vector<std::jthread> others;
    for (std::size_t i = 1; i < std::min(threads, count); ++i) others.emplace_back(run);
    run();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace tessera
