#pragma once

// How a block divides its shared memory. Plain C++, for the host.
#include <algorithm>

#include "kernels/token_contrast/token_contrast.h"

namespace tessera::kernels {
namespace {

constexpr int kContrastSliceBytes = 128;  // of each row, in a slice
constexpr int kContrastNumbers = 8;       // floats for each row of a pair, see token_contrast.cu

/// Offsets are in bytes. The numbers of the rows come first, then the similarities, in the backward pass the weights, then a ring of slices
/// of queries and keys.
struct TokenContrastPlan {
  int rows = 0;  // tokens, in whole tiles of 16
  int stages = 0;
  int similarity_pitch = 0, weight_pitch = 0;  // from one row to the next, in elements
  int similarities = 0, weights = 0, ring = 0, stage_bytes = 0;
  std::size_t bytes = 0;
};

/// Returns the plan with the most buffers, up to four, that `memory` allows; with fewer than one, the plan for one.
inline TokenContrastPlan contrast_plan_within(std::int64_t tokens, DataType type, Pass pass, std::size_t memory) {
  const auto rounded = [](std::int64_t bytes) { return static_cast<int>((bytes + 127) / 128 * 128); };
  const int element = static_cast<int>(size_of(type));
  TokenContrastPlan plan;
  plan.rows = static_cast<int>((tokens + 15) / 16 * 16);
  plan.similarity_pitch = plan.rows + 1;         // odd, so that a column is in different banks
  plan.weight_pitch = plan.rows + 16 / element;  // an odd number of 16-byte words, so that eight rows are in different banks
  plan.similarities = rounded(plan.rows * kContrastNumbers * 4);
  plan.weights = plan.similarities + rounded(plan.rows * plan.similarity_pitch * 4);
  plan.ring = plan.weights + (pass == Pass::kBackward ? rounded(plan.rows * plan.weight_pitch * element) : 0);
  plan.stage_bytes = 2 * plan.rows * kContrastSliceBytes;
  plan.stages = 1;
  const auto bytes = [&](int stages) { return static_cast<std::size_t>(plan.ring) + static_cast<std::size_t>(stages * plan.stage_bytes); };
  while (plan.stages < 4 && bytes(plan.stages + 1) <= memory) ++plan.stages;
  plan.bytes = bytes(plan.stages);
  return plan;
}

/// Returns the plan for a block that may use `memory` bytes. Prefers blocks that leave room for a second one, if they have three buffers.
inline TokenContrastPlan contrast_plan(const TokenContrastProblem& problem, Pass pass, std::size_t memory) {
  constexpr std::size_t kReserved = 1024;  // bytes of shared memory that the system takes for each block
  if (problem.block_memory != 0) memory = std::min(memory, problem.block_memory);
  const TokenContrastPlan half = contrast_plan_within(problem.tokens, problem.type, pass, (memory + kReserved) / 2 - kReserved);
  if (half.stages >= 3) return half;
  return contrast_plan_within(problem.tokens, problem.type, pass, memory);
}

}  // namespace
}  // namespace tessera::kernels
