#pragma once

// The instantiations of the GPU kernels, and how a problem is divided into blocks. Plain C++, for the host.
#include <algorithm>
#include <cstring>

#include "kernels/device/tuning.h"
#include "kernels/sparsify_group/hopper_plan.h"
#include "kernels/sparsify_group/sparsify_group.h"

namespace tessera::kernels {
namespace {

/// A block processes a tile of up to 16 row_tiles tokens and up to `patches` patches (64 for each of the column_tiles tiles of a warp). It
/// reads slices of `slice_bytes` bytes of each row.
struct SparsifyGroupConfiguration {
  const char* name;
  int row_tiles, column_tiles, slice_bytes;
  std::int64_t patches() const { return 64 * column_tiles; }
};
constexpr SparsifyGroupConfiguration kSparsifyGroupConfigurations[] = {
    {"80x256/128", 5, 4, 128},
    {"32x640/64", 2, 10, 64},
    {"16x1024/64", 1, 16, 64},
};

/// Configurations, also of the kernels for Hopper GPUs, that are preferred to the rule of best_plan(), in the order of sizes. The kernels
/// for Hopper GPUs run only if the choices for both passes are theirs.
constexpr TunedChoice kSparsifyGroupChoices[] = {
    {Pass::kForward, DataType::kBfloat16, 90, 56, 256, "hopper/56x256"},
    {Pass::kForward, DataType::kBfloat16, 90, 80, 256, "hopper/80x256"},
    {Pass::kBackward, DataType::kBfloat16, 90, 56, 256, "hopper/56x256"},
    {Pass::kBackward, DataType::kBfloat16, 90, 80, 256, "hopper/80x256"},
};

/// How the blocks of a launch divide the work and their shared memory. Slices of tokens and patches pass through a ring of buffers, first
/// for the similarities, from `similarity_ring` on, and then for the products with the weights, from `product_ring` on. Numbers for rows
/// come before both; the weights (and, in the backward pass, the gradients of the similarities) come before the second ring. The last
/// buffer of the second ring also serves for exchanging sums between warps.
struct SparsifyGroupPlan {
  const SparsifyGroupConfiguration* configuration = nullptr;  // null if the problem needs more shared memory than a block can use
  int row_tiles = 0;                                          // tiles of 16 tokens that a block processes at once
  int token_tiles = 0;                                        // how often until all tokens of a pair are done
  int similarity_stages = 0, product_stages = 0;              // buffers of the rings
  int weight_pitch = 0;                                       // from one row of weights to the next, in elements
  int weights = 0, similarity_ring = 0, product_ring = 0;     // offsets in bytes
  int similarity_stage_bytes = 0, product_stage_bytes = 0;
  std::size_t bytes = 0;

  /// Whether another plan needs fewer passes over the patches, or has more buffers of up to three.
  bool worse_than(const SparsifyGroupPlan& other) const {
    if (configuration == nullptr || other.configuration == nullptr) return other.configuration != nullptr;
    if (token_tiles != other.token_tiles) return token_tiles > other.token_tiles;
    return std::min({3, similarity_stages, product_stages}) < std::min({3, other.similarity_stages, other.product_stages});
  }
};

constexpr int kRowNumbers = 8;  // floats for each token of a tile, see blocks.h

/// The parts of a block's shared memory, in bytes, if it processes 16 row_tiles tokens at once.
struct SparsifyGroupSizes {
  std::int64_t patch_rows, rows, weight_pitch, numbers, weights, similarity_stage, product_stage, sums;

  SparsifyGroupSizes(std::int64_t patches, DataType type, Pass pass, const SparsifyGroupConfiguration& configuration,
                     std::int64_t row_tiles)
      : patch_rows((patches + 15) / 16 * 16), rows(16 * row_tiles) {
    const std::int64_t element = static_cast<std::int64_t>(size_of(type)), matrices = pass == Pass::kBackward ? 2 : 1;
    // An odd number of 16-byte words, so that eight rows are in different banks.
    weight_pitch = patch_rows + 16 / element;
    numbers = rounded(rows * kRowNumbers * 4);
    weights = rounded(matrices * rows * weight_pitch * element);
    similarity_stage = (patch_rows + matrices * rows) * configuration.slice_bytes;
    product_stage = (patch_rows + (matrices - 1) * 2 * rows) * configuration.slice_bytes;
    sums = matrices * rows * 8 * 8;
  }
  static std::int64_t rounded(std::int64_t bytes) { return (bytes + 127) / 128 * 128; }
  std::int64_t similarity_bytes(std::int64_t stages) const { return numbers + stages * similarity_stage; }
  std::int64_t product_bytes(std::int64_t stages) const {
    return numbers + weights + (stages - 1) * product_stage + std::max(product_stage, sums);
  }
};

inline SparsifyGroupPlan make_plan(const SparsifyGroupProblem& problem, Pass pass, const SparsifyGroupConfiguration& configuration,
                                   std::size_t memory) {
  constexpr std::int64_t kMostStages = 4;
  SparsifyGroupPlan plan;
  if (problem.patches > configuration.patches()) return plan;
  const std::int64_t budget = static_cast<std::int64_t>(memory), all_rows = std::max<std::int64_t>(1, (problem.tokens + 15) / 16);
  const std::int64_t row_bytes = problem.width * static_cast<std::int64_t>(size_of(problem.type));
  const std::int64_t most_stages = std::min(kMostStages, (row_bytes + configuration.slice_bytes - 1) / configuration.slice_bytes);
  for (std::int64_t most = std::min<std::int64_t>(configuration.row_tiles, all_rows); most >= 1; --most) {
    const std::int64_t token_tiles = (all_rows + most - 1) / most, row_tiles = (all_rows + token_tiles - 1) / token_tiles;
    const SparsifyGroupSizes sizes(problem.patches, problem.type, pass, configuration, row_tiles);
    if (sizes.similarity_bytes(1) > budget || sizes.product_bytes(1) > budget) continue;
    plan.configuration = &configuration;
    plan.row_tiles = static_cast<int>(row_tiles);
    plan.token_tiles = static_cast<int>(token_tiles);
    plan.similarity_stages = plan.product_stages = 1;
    while (plan.similarity_stages < most_stages && sizes.similarity_bytes(plan.similarity_stages + 1) <= budget) ++plan.similarity_stages;
    while (plan.product_stages < most_stages && sizes.product_bytes(plan.product_stages + 1) <= budget) ++plan.product_stages;
    plan.weight_pitch = static_cast<int>(sizes.weight_pitch);
    plan.weights = plan.similarity_ring = static_cast<int>(sizes.numbers);
    plan.product_ring = static_cast<int>(sizes.numbers + sizes.weights);
    plan.similarity_stage_bytes = static_cast<int>(sizes.similarity_stage);
    plan.product_stage_bytes = static_cast<int>(sizes.product_stage);
    plan.bytes = static_cast<std::size_t>(
        std::max(sizes.similarity_bytes(plan.similarity_stages), sizes.product_bytes(plan.product_stages)));
    return plan;
  }
  return plan;
}

/// Returns the best plan of the configuration `name`, or of all configurations if `name` is null. In the forward pass, prefers blocks that
/// leave room for a second one if the number of passes stays the same and the first ring has three buffers.
inline SparsifyGroupPlan best_plan(const SparsifyGroupProblem& problem, Pass pass, const char* name, std::size_t memory) {
  constexpr std::size_t kReserved = 1024;  // bytes of shared memory that the system takes for each block
  SparsifyGroupPlan best;
  for (const SparsifyGroupConfiguration& configuration : kSparsifyGroupConfigurations) {
    if (name != nullptr && std::strcmp(name, configuration.name) != 0) continue;
    SparsifyGroupPlan plan = make_plan(problem, pass, configuration, memory);
    if (pass == Pass::kForward) {
      const SparsifyGroupPlan half = make_plan(problem, pass, configuration, (memory + kReserved) / 2 - kReserved);
      if (half.configuration != nullptr && half.token_tiles == plan.token_tiles &&
          half.similarity_stages >= std::min(3, plan.similarity_stages))
        plan = half;
    }
    if (best.worse_than(plan)) best = plan;
  }
  return best;
}

/// Returns how blocks of the device process the problem, with the configuration that the problem names, or else the table, or else the rule
/// of best_plan(). The plan's configuration is null if a block has too little shared memory.
inline SparsifyGroupPlan choose_plan(const SparsifyGroupProblem& problem, Pass pass, const TunedDevice& device) {
  const std::size_t memory = problem.block_memory != 0 ? std::min(problem.block_memory, device.block_memory) : device.block_memory;
  if (problem.configuration != nullptr) return best_plan(problem, pass, problem.configuration, memory);
  const char* const tuned =
      tuned_choice(kSparsifyGroupChoices, pass, problem.type, device.compute_capability, problem.tokens, problem.patches);
  if (tuned == nullptr) return best_plan(problem, pass, nullptr, memory);
  const SparsifyGroupPlan plan = best_plan(problem, pass, tuned, memory);
  return plan.configuration != nullptr ? plan : best_plan(problem, pass, nullptr, memory);
}

/// Returns how blocks of a Hopper GPU process the problem, with the configuration that the problem names, or else the table. The plan's
/// configuration is null if another kernel processes it.
inline SparsifyGroupHopperPlan choose_hopper_plan(const SparsifyGroupProblem& problem, Pass pass, const TunedDevice& device) {
  if (problem.configuration != nullptr) return hopper_plan(problem, pass, problem.configuration, device);
  SparsifyGroupHopperPlan plan;
  for (const Pass each : {Pass::kForward, Pass::kBackward}) {
    const char* const tuned =
        tuned_choice(kSparsifyGroupChoices, each, problem.type, device.compute_capability, problem.tokens, problem.patches);
    const SparsifyGroupHopperPlan chosen = tuned == nullptr ? SparsifyGroupHopperPlan() : hopper_plan(problem, each, tuned, device);
    if (chosen.configuration == nullptr) return {};
    if (each == pass) plan = chosen;
  }
  return plan;
}

}  // namespace
}  // namespace tessera::kernels
