#pragma once

// What the forward and backward kernels share. A block computes one head of one sequence, whose tokens all fit into its shared memory. It
// copies rows with 16-byte copies of threads instead of the copy unit (load_tile), because these can stop at the end of each sequence: rows
// after it, which belong to other sequences, become zeros. So nothing that they hold, not even NaN, enters a product.
#include "kernels/attention/configurations.h"
#include "kernels/device/hopper.h"
#include "kernels/device/tensor_core.h"

namespace tessera::kernels {
namespace {

static_assert(kAttentionHeadWidth == kTileColumns, "a head's rows are those of a tile");
constexpr int kHeadSteps = kTileColumns / 16;   // instructions for a sum over the width of a head
constexpr int kHeadSums = kTileColumns / 2;     // a thread's results of a product [64, width of a head]
constexpr float kLogOfE = 1.4426950408889634f;  // to base 2

/// One head of one sequence. Pointers are to the head's columns in the sequence's first row.
struct AttentionHead {
  std::int64_t first;  // row
  int tokens, head;

  __device__ __forceinline__ explicit AttentionHead(const AttentionProblem& p) {
    const std::int64_t heads = p.heads, sequence = blockIdx.x / heads;  // neighbors in memory run at the same time
    head = static_cast<int>(blockIdx.x - sequence * heads);
    first = p.offsets != nullptr ? p.offsets[sequence] : sequence * p.longest;
    tokens = static_cast<int>(p.offsets != nullptr ? p.offsets[sequence + 1] - first : p.longest);
  }
  /// `part` is 0 for queries, 1 for keys, and 2 for values.
  template <class Element>
  __device__ __forceinline__ Element* of_part(Element* qkv, const AttentionProblem& p, int part) const {
    return qkv + (first * 3 + part) * p.heads * kTileColumns + head * kTileColumns;
  }
  template <class Element>
  __device__ __forceinline__ Element* of_output(Element* output, const AttentionProblem& p) const {
    return output + first * p.heads * kTileColumns + head * kTileColumns;
  }
  /// Returns the last key that a query sees. The keys before it are visible, too.
  __device__ __forceinline__ int last_key(const AttentionProblem& p, int query) const {
    return p.causal && query < tokens ? query : tokens - 1;
  }
  /// Returns the first query that sees a key. The queries after it see the key, too. Nothing sees what comes after the last token.
  __device__ __forceinline__ int first_query(const AttentionProblem& p, int key) const {
    return key >= tokens ? static_cast<int>(kMostAttentionTokens) : p.causal ? key : 0;
  }
};

/// Starts copying a head's rows to kRows rows of a tile. Rows after the last token become zeros.
template <int kThreads, int kRows>
__device__ __forceinline__ void copy_tokens(unsigned char* tile, const Bfloat16* from, std::int64_t row_stride, int tokens) {
  const int piece = threadIdx.x % 8;
  for (int row = threadIdx.x / 8; row < kRows; row += kThreads / 8) {
    const bool real = row < tokens;
    copy_async(tile + tile_offset(row, 8 * piece), real ? from + row * row_stride + 8 * piece : from, real);
  }
}

/// Waits until at most kGroupsLeft groups of the block's copies are pending. Products can then read the others.
template <int kGroupsLeft>
__device__ __forceinline__ void wait_for_tokens() {
  wait_for_copies<kGroupsLeft>();
  fence_for_copies();
  __syncthreads();
}

/// Returns 2^x, with an error of about 2^-22.
__device__ __forceinline__ float power_of_two(float x) {
#if defined(TESSERA_CUDA_EMULATION)
  return std::exp2(x);
#else
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#endif
}

/// Stores the products [64, width of a head] of a warpgroup, times `factor(i)` for the thread's sum i, as rows of tokens from `row0` on.
template <class Factor>
__device__ __forceinline__ void store_tokens(const float (&sums)[kHeadSums], Bfloat16* to, std::int64_t row_stride, int row0, int tokens,
                                             Factor factor) {
  float results[kTileColumns / 8][4];
#pragma unroll
  for (int i = 0; i < kHeadSums; ++i) results[i / 4][i % 4] = sums[i] * factor(i);
  const int first = row0 + threadIdx.x % kWarpgroup / 32 * 16;
  store_tiles<Bfloat16>(results, 0, kTileColumns, true,
                        [&](int row) { return first + row < tokens ? to + (first + row) * row_stride : nullptr; });
}

}  // namespace
}  // namespace tessera::kernels
