#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include <ATen/Context.h>
#include <gtest/gtest.h>

#include "tests/distributed/ranks.h"
#include <tessera/distributed/spawn.h>

namespace tessera {

/// One rank connected over NCCL: this process, on its first GPU.
inline ProcessGroup nccl_group() {
  const LaunchEnvironment place{"test", 0, 1, 0, "127.0.0.1", free_port()};
  return ProcessGroup::connect(place, {.backend = "nccl", .timeout = 60}, at::Device(at::kCUDA, 0));
}

/// Ranks with a connection, and what they are connected by.
struct GroupCase {
  int size = 1;
  std::string backend = "gloo";  // nccl: one rank, as nccl_group() has it
};

inline void PrintTo(const GroupCase& c, std::ostream* out) {
  *out << c.backend << '_' << c.size;
}

/// Tests that hold for ranks of any number and backend: collectives_test.cpp has them, and each program that links it says
/// which cases it runs. Without a GPU those with NCCL are skipped.
class Ranks : public testing::TestWithParam<GroupCase> {
 protected:
  /// What a rank does with tensors on `device`, its own.
  using Body = std::function<Tensors(const ProcessGroup& group, const at::Device& device)>;

  void SetUp() override {
    if (GetParam().backend == "nccl" && !at::hasCUDA()) GTEST_SKIP() << "no GPU";
  }

  /// What each rank gave, by rank, on the CPU. Empty, and the test failed, where a rank failed.
  static std::vector<Tensors> run(const Body& body) {
    const auto& [size, backend] = GetParam();
    if (backend != "nccl")
      return run_ranks(
          size, [&](const ProcessGroup& group) { return body(group, at::kCPU); }, backend);
    const ProcessGroup group = nccl_group();
    Tensors results;
    for (const auto& [name, tensor] : body(group, at::Device(at::kCUDA, 0))) results[name] = tensor.detach().cpu();
    return {results};
  }
};

}  // namespace tessera
