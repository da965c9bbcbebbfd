#pragma once

// What the two sources of the forward pass share.
#include "kernels/max_similarity/configurations.h"
#include "kernels/max_similarity/packed_rows.h"

namespace tessera::kernels {
namespace {

struct ForwardArguments {
  std::int64_t images, texts;
  int text_tiles, slices;  // slices: number of slices per part of a row (see PackedRows::parts); both are for other GPUs than Hopper's
  PackedRows patches, tokens;
  const std::uint8_t *patch_keep, *token_keep;
  float *i2t, *t2i;
  Place *best_token, *best_patch;
};

inline ForwardArguments make_arguments(const MaxSimilarityForward& given) {
  ForwardArguments arguments{};
  lay_out(given.problem, given.workspace, arguments.patches, arguments.tokens);
  arguments.images = given.problem.images;
  arguments.texts = given.problem.texts;
  arguments.patch_keep = given.patch_keep;
  arguments.token_keep = given.token_keep;
  arguments.i2t = given.i2t;
  arguments.t2i = given.t2i;
  arguments.best_token = given.best_token;
  arguments.best_patch = given.best_patch;
  return arguments;
}

/// A maximum and its index among the kept rows. If all values are -infinity, the index is 0, which is a valid index.
struct Best {
  float value;
  int index;
};
__device__ __forceinline__ Best better(const Best& a, const Best& b) {
  return b.value > a.value || (b.value == a.value && b.index < a.index) ? b : a;
}
/// Returns the best value among the lanes whose numbers differ from this lane's number only in the bits of value
/// first_step, 2 * first_step, 4 * first_step, ..., steps / 2.
__device__ __forceinline__ Best best_of_lanes(Best mine, int first_step, int steps) {
#pragma unroll
  for (int step = first_step; step < steps; step *= 2) {
    const Best other{__shfl_xor_sync(kAllLanes, mine.value, step), __shfl_xor_sync(kAllLanes, mine.index, step)};
    mine = better(mine, other);
  }
  return mine;
}

}  // namespace

// The kernel for Hopper GPUs. The rows in the workspace are packed.
namespace cuda {
Status max_similarity_forward_hopper(const MaxSimilarityForward& given, const MaxSimilarityHopperPlan& plan, void* stream);
}  // namespace cuda
namespace emulation {
Status max_similarity_forward_hopper(const MaxSimilarityForward& given, const MaxSimilarityHopperPlan& plan, void* stream);
}  // namespace emulation

}  // namespace tessera::kernels
