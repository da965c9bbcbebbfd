#pragma once

// The instantiations of the GPU kernels of the forward pass, and which problems they take. Plain C++, for the host.
#include <algorithm>
#include <cstring>

#include "kernels/device/hopper_layout.h"
#include "kernels/device/tuning.h"
#include "kernels/token_max_projection/token_max_projection.h"

namespace tessera::kernels {
namespace {

/// A block of a kernel for Hopper GPUs multiplies `positions` positions (a multiple of 8) of a sample by 256 rows of the table at once.
/// `positions` is 0 for the kernel for all GPUs and all problems.
struct TokenMaxProjectionConfiguration {
  const char* name;
  int positions;
};
constexpr TokenMaxProjectionConfiguration kTokenMaxProjectionConfigurations[] = {
    {"mma", 0},
    {"hopper/80", 80},
    {"hopper/128", 128},
    {"hopper/200", 200},
};

/// How a block for Hopper GPUs uses its shared memory: a ring of buffers, each with a tile of the table and a tile of tokens; then two
/// barriers for each buffer.
struct TokenMaxProjectionMemory {
  static constexpr int kTableRows = 256, kTableBytes = kTableRows * kTileRowBytes;
  int stage_bytes, stages;

  constexpr explicit TokenMaxProjectionMemory(int positions)
      : stage_bytes(kTableBytes + positions * kTileRowBytes), stages(std::min(4, 227 * 1024 / (stage_bytes + 16))) {}
  constexpr int barriers() const { return stages * stage_bytes; }
  constexpr std::size_t bytes() const { return static_cast<std::size_t>(stages) * static_cast<std::size_t>(stage_bytes + 16); }
};

inline bool takes(const TokenMaxProjectionConfiguration& configuration, const TokenMaxProjectionForward& given, const TunedDevice& device) {
  if (configuration.positions == 0) return true;
  const TokenMaxProjectionProblem& problem = given.problem;
  constexpr std::int64_t kMost = std::int64_t{1} << 30;  // of each number below, which the kernel keeps in an int
  const std::int64_t tiles = problem.vocabulary / TokenMaxProjectionMemory::kTableRows + 1;
  const auto aligned = [](const void* data) { return reinterpret_cast<std::uintptr_t>(data) % 16 == 0; };
  return device.compute_capability == 90 && device.block_memory >= TokenMaxProjectionMemory(configuration.positions).bytes() &&
         problem.type == DataType::kBfloat16 && problem.width % 8 == 0 && problem.width <= kMost && problem.positions <= kMost &&
         tiles <= kMost / problem.batch && aligned(given.tokens) && aligned(given.table);
}

/// Returns the configuration that the problem names, or else the one that multiplies the fewest positions, padding included; null if the
/// named one does not exist or cannot process the problem. The batch is at least 1.
inline const TokenMaxProjectionConfiguration* choose_configuration(const TokenMaxProjectionForward& given, const TunedDevice& device) {
  const TokenMaxProjectionConfiguration* best = nullptr;
  std::int64_t least = 0;
  for (const TokenMaxProjectionConfiguration& each : kTokenMaxProjectionConfigurations) {
    if (given.problem.configuration != nullptr && std::strcmp(given.problem.configuration, each.name) != 0) continue;
    if (!takes(each, given, device)) continue;
    const std::int64_t multiplied =
        each.positions == 0 ? 0 : (given.problem.positions + each.positions - 1) / each.positions * each.positions;
    if (best == nullptr || best->positions == 0 || multiplied <= least) {  // of equals, the larger tile
      best = &each;
      least = multiplied;
    }
  }
  return best;
}

}  // namespace

// The kernel for Hopper GPUs. The configuration is not "mma" and takes the problem, and the arguments are checked.
namespace cuda {
Status token_max_projection_forward_hopper(const TokenMaxProjectionForward& arguments, int positions, void* stream);
}  // namespace cuda
namespace emulation {
Status token_max_projection_forward_hopper(const TokenMaxProjectionForward& arguments, int positions, void* stream);
}  // namespace emulation

}  // namespace tessera::kernels
