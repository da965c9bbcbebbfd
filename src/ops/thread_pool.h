#pragma once

#include <functional>

namespace tessera {

/// Returns the number of threads of LibTorch's pool among which work can be divided; 1 inside a parallel region.
int pool_threads();

/// Calls body(0) .. body(tasks - 1) on LibTorch's pool, in any order and concurrently. Returns when all calls are done.
void run_on_pool(int tasks, const std::function<void(int)>& body);

}  // namespace tessera
