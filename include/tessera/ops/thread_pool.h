#pragma once

#include <functional>

namespace tessera {

/// Returns the number of threads of LibTorch's pool to divide work among; 1 inside a parallel region.
int pool_threads();

/// Calls body(0) .. body(tasks - 1) on LibTorch's pool, in any order and concurrently, and returns when all are done.
void run_on_pool(int tasks, const std::function<void(int)>& body);

}  // namespace tessera
