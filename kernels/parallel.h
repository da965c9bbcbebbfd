#pragma once

#include <cstdint>
#include <functional>

namespace tessera::kernels {

/// Where the CPU kernels get their threads from. By default, the kernels start their own threads. A caller that has a
/// thread pool (LibTorch's at::parallel_for) passes it in, because two pools of spinning threads slow each other down.
struct Parallel {
  /// Calls body(0) .. body(tasks - 1), in any order and concurrently, and returns when all are done.
  using Run = std::function<void(int tasks, const std::function<void(int)>& body)>;
  /// The number of threads to divide the work among. 0 means as many as the machine has.
  int threads = 0;
  /// The caller's pool. If it is unset, the kernels start std::threads.
  Run run;
};

/// Calls body(thread, item) for every item in [0, items). Each idle thread takes the next item. `thread` is below
/// thread_count(parallel, items), so it can index per-thread scratch memory.
void for_each_item(const Parallel& parallel, std::int64_t items, const std::function<void(int, std::int64_t)>& body);

int thread_count(const Parallel& parallel, std::int64_t items);

}  // namespace tessera::kernels
