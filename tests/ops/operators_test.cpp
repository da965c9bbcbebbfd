#include <cstdlib>
#include <dlfcn.h>
#include <mutex>
#include <set>
#include <thread>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

#include "src/ops/kernel_call.h"
#include <tessera/ops/flops_regularizer.h>

namespace tessera {
namespace {

TEST(Operators, LibraryLoadsNextToTheProgramsOwnCopy) {
  const char* const moved = std::getenv("TESSERA_OPS_LIBRARY");
  void* const library = dlopen(moved != nullptr ? moved : TESSERA_OPS_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  EXPECT_EQ(flops_regularizer(at::ones({2, 3})).item<float>(), 3);  // calls this program's copy of the operator, not `library`'s copy
  EXPECT_TRUE(c10::Dispatcher::singleton().findSchema({"tessera::flops_regularizer", ""}).has_value());
}

TEST(Operators, KernelsRunOnLibTorchsThreads) {
  const int before = at::get_num_threads();
  at::set_num_threads(2);
  const kernels::Parallel parallel = torch_threads();
  EXPECT_EQ(parallel.threads, 2);
  std::mutex mutex;
  std::set<std::thread::id> threads;
  parallel.run(2, [&](int) {
    EXPECT_TRUE(at::in_parallel_region());
    EXPECT_EQ(torch_threads().threads, 1) << "no threads within threads";
    const std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
  });
  EXPECT_EQ(threads.size(), 2);
  at::set_num_threads(before);
}

}  // namespace
}  // namespace tessera
