#pragma once

#include <cstdint>
#include <functional>

namespace tessera::kernels {

/// How the CPU kernels get their threads. By default they start their own; a caller with a pool (LibTorch's
/// at::parallel_for) passes it in, because two pools that spin against each other lose more than either gains.
struct Parallel {
  /// Calls body(0) .. body(tasks - 1), in any order and concurrently, and returns when all are done.
  using Run = std::function<void(int tasks, const std::function<void(int)>& body)>;
  /// Number of threads to divide the work among; 0: as many as the machine has.
  int threads = 0;
  /// Unset: std::thread.
  Run run;
};

/// Calls body(thread, item) for every item in [0, items); an idle thread processes the next item. `thread` is below
/// thread_count(parallel, items), so it can index per-thread scratch memory.
void for_each_item(const Parallel& parallel, std::int64_t items, const std::function<void(int, std::int64_t)>& body);

int thread_count(const Parallel& parallel, std::int64_t items);

}  // namespace tessera::kernels
