#include "kernels/parallel.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace tessera::kernels {
namespace {

void run_on_own_threads(int tasks, const std::function<void(int)>& body) {
  std::vector<std::thread> others;
  others.reserve(tasks - 1);
  for (int task = 1; task < tasks; ++task) others.emplace_back(body, task);
  body(0);
  for (std::thread& other : others) other.join();
}

}  // namespace

int thread_count(const Parallel& parallel, std::int64_t items) {
  const int wanted = parallel.threads > 0 ? parallel.threads : static_cast<int>(std::thread::hardware_concurrency());
  return static_cast<int>(std::clamp<std::int64_t>(items, 1, std::max(1, wanted)));
}

void for_each_item(const Parallel& parallel, std::int64_t items, const std::function<void(int, std::int64_t)>& body) {
  const int threads = thread_count(parallel, items);
  std::atomic<std::int64_t> next{0};
  const std::function<void(int)> work = [&](int thread) {
    for (std::int64_t item = next++; item < items; item = next++) body(thread, item);
  };
  if (threads == 1) {
    work(0);
  } else if (parallel.run) {
    parallel.run(threads, work);
  } else {
    run_on_own_threads(threads, work);
  }
}

}  // namespace tessera::kernels
