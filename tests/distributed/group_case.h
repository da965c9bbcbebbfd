#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include <ATen/Context.h>
#include <gtest/gtest.h>

#include "tests/distributed/ranks.h"

namespace tessera {

/// Returns a group of one rank over NCCL: this process on its first GPU.
inline ProcessGroup nccl_group() {
  return ProcessGroup::connect({}, {.backend = "nccl", .timeout = 60}, at::Device(at::kCUDA, 0));
}

/// The number of connected ranks, and the backend that connects them.
struct GroupCase {
  int size = 1;
  std::string backend = "gloo";  // for nccl, the group is nccl_group(), which has one rank
};

inline void PrintTo(const GroupCase& c, std::ostream* out) {
  *out << c.backend << '_' << c.size;
}

/// The fixture of the tests in collectives_test.cpp, for any number of ranks and any backend. Each program that links that file
/// instantiates its own cases. Without a GPU, cases with NCCL are skipped.
class Ranks : public testing::TestWithParam<GroupCase> {
 protected:
  /// The function that each rank runs, with tensors on its `device`.
  using Body = std::function<Tensors(const ProcessGroup& group, const at::Device& device)>;

  void SetUp() override {
    if (GetParam().backend == "nccl" && !at::hasCUDA()) GTEST_SKIP() << "no GPU";
  }

  /// Returns the results by rank, on the CPU. Throws if a rank fails.
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
