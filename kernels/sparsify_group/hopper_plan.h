#pragma once

// The instantiations of the kernels for Hopper GPUs (compute capability 9.0), and which problems they take. Plain C++, for the host.
#include <algorithm>
#include <cstring>

#include "kernels/device/hopper_layout.h"
#include "kernels/device/tuning.h"
#include "kernels/sparsify_group/sparsify_group.h"

namespace tessera::kernels {

/// A block processes up to `tokens` tokens of a pair, and up to 256 patches.
struct SparsifyGroupHopperConfiguration {
  const char* name;
  int tokens;  // a multiple of 8
};
constexpr SparsifyGroupHopperConfiguration kSparsifyGroupHopperConfigurations[] = {
    {"hopper/56x256", 56},
    {"hopper/80x256", 80},
};

/// How a block uses its shared memory: a ring of buffers, each with a tile of patches and one or two tiles of tokens; then the weights (or
/// the gradients of the similarities), numbers for tokens, and barriers.
struct SparsifyGroupHopperPlan {
  const SparsifyGroupHopperConfiguration* configuration = nullptr;  // null if these kernels do not take the problem
  int patch_rows = 0, token_rows = 0;                               // of the tiles
  int stages = 0, stage_bytes = 0;                                  // buffers of the ring
  int blocks = 0, numbers = 0, barriers = 0;                        // offsets in bytes
  std::size_t bytes = 0;
};

inline SparsifyGroupHopperPlan make_plan(const SparsifyGroupProblem& problem, Pass pass,
                                         const SparsifyGroupHopperConfiguration& configuration, const TunedDevice& device) {
  constexpr int kMostStages = 4, kLeastStages = 2;
  constexpr std::int64_t kMostPatches = 256, kMostBatch = std::int64_t{1} << 30;
  SparsifyGroupHopperPlan plan;
  if (device.compute_capability != 90 || problem.type != DataType::kBfloat16 || problem.batch < 1 || problem.batch > kMostBatch ||
      problem.tokens < 1 || problem.tokens > configuration.tokens || problem.patches > kMostPatches || problem.width % 8 != 0) {
    return plan;
  }
  const std::size_t memory = problem.block_memory != 0 ? std::min(problem.block_memory, device.block_memory) : device.block_memory;
  plan.patch_rows = static_cast<int>((problem.patches + 15) / 16 * 16);
  plan.token_rows = (configuration.tokens + 15) / 16 * 16;
  plan.stage_bytes = (plan.patch_rows + (pass == Pass::kBackward ? 2 : 1) * plan.token_rows) * kTileRowBytes;
  const int numbers = plan.token_rows * 32, rest = plan.patch_rows * configuration.tokens * 2 + numbers;
  const auto bytes = [&](int stages) { return static_cast<std::size_t>(stages * (plan.stage_bytes + 3 * 8) + rest); };
  plan.stages = kMostStages;
  while (plan.stages > kLeastStages && bytes(plan.stages) > memory) --plan.stages;
  plan.blocks = plan.stages * plan.stage_bytes;
  plan.barriers = plan.blocks + rest;
  plan.numbers = plan.barriers - numbers;
  plan.bytes = bytes(plan.stages);
  if (plan.bytes <= memory) plan.configuration = &configuration;
  return plan;
}

/// Whether the copy unit can copy a problem's array of `count` rows per pair. True if there is no array.
template <class AnyRows>
bool copies_tiles(const SparsifyGroupProblem& problem, const AnyRows& rows, std::int64_t count) {
  return rows.data == nullptr || tile_fault(tile_source(rows, problem.batch, count, problem.width)) == nullptr;
}

inline bool names_hopper_configuration(const SparsifyGroupProblem& problem) {
  return problem.configuration != nullptr && std::strncmp(problem.configuration, "hopper/", 7) == 0;
}

/// Returns the plan of the configuration `name`. Its configuration is null if there is no such configuration, or if one of the passes
/// cannot take the problem: both passes use these kernels or none does, because they must compute the same bits of the similarities.
inline SparsifyGroupHopperPlan hopper_plan(const SparsifyGroupProblem& problem, Pass pass, const char* name, const TunedDevice& device) {
  for (const SparsifyGroupHopperConfiguration& configuration : kSparsifyGroupHopperConfigurations) {
    if (std::strcmp(name, configuration.name) != 0) continue;
    const SparsifyGroupHopperPlan plan = make_plan(problem, pass, configuration, device);
    if (make_plan(problem, Pass::kBackward, configuration, device).configuration != nullptr) return plan;
  }
  return {};
}

inline Status hopper_configuration_fails(const SparsifyGroupProblem& problem) {
  return Status::failure(std::string("sparsify_group: the configuration ") + problem.configuration +
                         " cannot process these arguments on this GPU");
}

// The kernels. The arguments are checked, and copies_tiles() is true for each array.
namespace cuda {
Status sparsify_group_forward_hopper(const SparsifyGroupForward& arguments, const SparsifyGroupHopperPlan& plan, void* stream);
Status sparsify_group_backward_hopper(const SparsifyGroupBackward& arguments, const SparsifyGroupHopperPlan& plan, void* stream);
}  // namespace cuda
namespace emulation {
Status sparsify_group_forward_hopper(const SparsifyGroupForward& arguments, const SparsifyGroupHopperPlan& plan, void* stream);
Status sparsify_group_backward_hopper(const SparsifyGroupBackward& arguments, const SparsifyGroupHopperPlan& plan, void* stream);
}  // namespace emulation

}  // namespace tessera::kernels
