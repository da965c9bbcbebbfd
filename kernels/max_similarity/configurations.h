#pragma once

// The instantiations of the GPU kernels of the forward pass, and which problems they take. Plain C++, for the host.
#include <algorithm>
#include <cstring>

#include "kernels/device/hopper_layout.h"
#include "kernels/device/tuning.h"
#include "kernels/max_similarity/max_similarity.h"

namespace tessera::kernels {
/// A block of a kernel for Hopper GPUs multiplies the patches of an image by up to `tokens` tokens (a multiple of 8) of each of `texts`
/// texts at once. `tokens` is 0 for the kernel for all GPUs.
struct MaxSimilarityConfiguration {
  const char* name;
  int tokens, texts;
};
constexpr MaxSimilarityConfiguration kMaxSimilarityConfigurations[] = {
    {"mma", 0, 0},
    {"hopper/56x2", 56, 2},
    {"hopper/80", 80, 1},
};

/// How a block for Hopper GPUs uses its shared memory: all slices of the image's patches; a ring of buffers, each with a slice of the
/// tokens; two slots for results of warps; and barriers.
struct MaxSimilarityHopperPlan {
  const MaxSimilarityConfiguration* configuration = nullptr;  // null if these kernels do not take the problem
  int patch_rows = 0, stages = 0;                             // rows of a slice of the patches, and buffers of the ring
  int ring = 0, slots = 0, barriers = 0;                      // offsets in bytes
  std::size_t bytes = 0;
};

/// The bytes of a slot: for each of the 8 warps, a maximum and its row for each token, and a sum for each text.
constexpr int max_similarity_slot_bytes(const MaxSimilarityConfiguration& configuration) {
  return 8 * configuration.texts * (configuration.tokens * 8 + 4);
}

/// `row_slices` is the number of slices of 64 columns of a packed row.
inline MaxSimilarityHopperPlan hopper_plan(const MaxSimilarityProblem& problem, std::int64_t row_slices,
                                           const MaxSimilarityConfiguration& configuration, const TunedDevice& device) {
  constexpr std::int64_t kLeastPatches = 129, kMostPatches = 256;  // fewer patches leave half of the rows empty
  constexpr int kMostStages = 6, kLeastStages = 2;
  MaxSimilarityHopperPlan plan;
  if (device.compute_capability != 90 || problem.patches < kLeastPatches || problem.patches > kMostPatches || problem.tokens < 1 ||
      problem.tokens > configuration.tokens || problem.images > 1 << 30 || problem.texts > 1 << 30) {
    return plan;
  }
  const std::int64_t memory = static_cast<std::int64_t>(device.block_memory), slots = 2 * max_similarity_slot_bytes(configuration);
  const std::int64_t stage_bytes = configuration.texts * configuration.tokens * kTileRowBytes;
  plan.patch_rows = static_cast<int>((problem.patches + 15) / 16 * 16);
  const std::int64_t image_bytes = (row_slices * plan.patch_rows * kTileRowBytes + kTileAlignment - 1) / kTileAlignment * kTileAlignment;
  const auto bytes = [&](std::int64_t stages) { return image_bytes + stages * (stage_bytes + 16) + slots + 5 * 8; };
  plan.stages = kMostStages;
  while (plan.stages > kLeastStages && bytes(plan.stages) > memory) --plan.stages;
  if (bytes(plan.stages) > memory) return plan;
  plan.ring = static_cast<int>(image_bytes);
  plan.slots = static_cast<int>(image_bytes + plan.stages * stage_bytes);
  plan.barriers = plan.slots + static_cast<int>(slots);
  plan.bytes = static_cast<std::size_t>(bytes(plan.stages));
  plan.configuration = &configuration;
  return plan;
}

}  // namespace tessera::kernels
