#pragma once

// The instantiations of the GPU kernels, and which problems they take. Plain C++, for the host.
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

/// The kernels of the backward pass: for all GPUs, and for Hopper GPUs.
constexpr const char* kMaxSimilarityBackwardConfigurations[] = {"gather", "hopper"};

/// A block of the backward pass for Hopper GPUs computes the gradient of kRows consecutive rows of one side, which may belong to several
/// images (or texts), and of two tiles of columns. Its shared memory has a ring of buffers. Each buffer has two tiles of the other side's
/// rows, and then numbers: a head of 16 bytes, the choices of the kRows rows, the indices of the tile's rows, and for each image (or text)
/// that the block's rows belong to, a slot with the choices of the tile's rows and with weights. Barriers come last.
struct MaxSimilarityGradientPlan {
  static constexpr int kRows = 256, kTileBytes = 64 * kTileRowBytes;
  static constexpr int kChoices = 16, kIndices = kChoices + 2 * kRows, kSlots = kIndices + 128, kSlotBytes = 128 + 16;
  int slots = 0, stages = 0, number_bytes = 0;
  std::size_t bytes = 0;  // 0 if the kernels do not take the problem
};

/// Returns the plan for the gradient of the patches, or of the tokens.
inline MaxSimilarityGradientPlan gradient_plan(const MaxSimilarityProblem& problem, bool of_patches, const TunedDevice& device) {
  using Plan = MaxSimilarityGradientPlan;
  constexpr std::int64_t kLeastSize = 16, kMostSize = 1024, kMostGroups = 1 << 19;  // sizes: rows of an image or a text
  constexpr int kMostStages = 12, kLeastStages = 4;
  const std::int64_t groups = of_patches ? problem.images : problem.texts, size = of_patches ? problem.patches : problem.tokens;
  if (device.compute_capability != 90 || std::min(problem.images, problem.texts) < 1 ||
      std::max(problem.images, problem.texts) > kMostGroups || size < kLeastSize || size > kMostSize ||
      problem.width % 8 != 0) {
    return {};
  }
  Plan plan;
  plan.slots = static_cast<int>(std::min(groups, (Plan::kRows - 2) / size + 2));
  plan.number_bytes = Plan::kSlots + plan.slots * Plan::kSlotBytes;
  const std::size_t stage_bytes = static_cast<std::size_t>(2 * Plan::kTileBytes + plan.number_bytes + 2 * 8);
  plan.stages = static_cast<int>(std::min<std::size_t>(kMostStages, device.block_memory / stage_bytes));
  if (plan.stages >= kLeastStages) plan.bytes = static_cast<std::size_t>(plan.stages) * stage_bytes;
  return plan;
}

inline Status cannot_process(const MaxSimilarityProblem& problem) {
  return Status::failure(std::string("max_similarity: the configuration ") + problem.configuration +
                         " cannot process these arguments on this GPU");
}

/// Whether the backward pass uses the kernels for Hopper GPUs.
inline bool takes_hopper_gradients(const MaxSimilarityProblem& problem, const TunedDevice& device) {
  const bool named = problem.configuration == nullptr || std::strcmp(problem.configuration, "hopper") == 0;
  return named && gradient_plan(problem, true, device).bytes > 0 && gradient_plan(problem, false, device).bytes > 0;
}

}  // namespace tessera::kernels
