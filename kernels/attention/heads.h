#pragma once

// What the forward and backward kernels share. A block computes one head of one sequence, whose tokens all fit into its shared memory. It
// copies rows with 16-byte copies of threads instead of the copy unit (load_tile), because these can stop at the end of each sequence: rows
// after it, which belong to other sequences, become zeros. So nothing that they hold, not even NaN, enters a product.
#include "kernels/attention/configurations.h"
#include "kernels/device/hopper.h"
#include "kernels/device/tensor_core.h"

namespace tessera::kernels {
namespace {

constexpr float kLogOfE = 1.4426950408889634f;  // to base 2

/// How shared memory holds rows of a head: those of width 64 as tiles, others as blocks of 8 x 8 elements, with the blocks of eight rows
/// one after another. Several lanes copy a row, in pieces of 16 bytes, such that they read whole sectors, and at most two of them write to
/// the same banks.
template <int kWidth>
struct HeadRows {
  static constexpr bool kIsTile = kWidth == kTileColumns;
  static constexpr int kRowBytes = 2 * kWidth, kSteps = kWidth / 16;  // kSteps: instructions for a sum over the width
  static constexpr int kSums = kWidth / 2;                            // a thread's results of a product [64, width]
  static constexpr int kLanes = kIsTile ? 8 : 2, kPieces = kWidth / 8 / kLanes;  // of a row, and of a lane
  using Sums = float[kSums];

  static __device__ __forceinline__ int offset(int row, int column) {
    return kIsTile ? tile_offset(row, column) : row / 8 * (8 * kRowBytes) + column / 8 * 128 + row % 8 * 16;
  }
  /// The operand whose side are the rows from `row` on, for a sum over the width, of which it has the columns from 16 `step` on.
  static __device__ __forceinline__ Operand along(const unsigned char* rows, int row, int step) {
    if constexpr (kIsTile) return tile_operand(rows + row * kRowBytes).after(step * kAlongRowsStep);
    return block_operand(rows + row * kRowBytes, 8 * kRowBytes, 128).after(step * 256);
  }
  /// The operand whose side is the width, for a sum over rows, of which it has those from `row` + 16 `step` on.
  static __device__ __forceinline__ Operand across(const unsigned char* rows, int row, int step) {
    if constexpr (kIsTile) return tile_operand(rows + row * kRowBytes).after(step * kAcrossRowsStep);
    return block_operand(rows + row * kRowBytes, 128, 8 * kRowBytes).after(step * 16 * kRowBytes);
  }
};

/// One head of one sequence. Pointers are to the head's columns in the sequence's first row.
template <int kWidth>
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
    return qkv + (first * 3 + part) * p.heads * kWidth + head * kWidth;
  }
  template <class Element>
  __device__ __forceinline__ Element* of_output(Element* output, const AttentionProblem& p) const {
    return output + first * p.heads * kWidth + head * kWidth;
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

/// Starts copying a head's rows to kRows rows in shared memory. Rows after the last token become zeros.
template <int kWidth, int kThreads, int kRows>
__device__ __forceinline__ void copy_tokens(unsigned char* to, const Bfloat16* from, std::int64_t row_stride, int tokens) {
  using Rows = HeadRows<kWidth>;
  for (int row = threadIdx.x / Rows::kLanes; row < kRows; row += kThreads / Rows::kLanes) {
    const bool real = row < tokens;
#pragma unroll
    for (int i = 0; i < Rows::kPieces; ++i) {
      const int column = 8 * (threadIdx.x % Rows::kLanes + i * Rows::kLanes);
      copy_async(to + Rows::offset(row, column), real ? from + row * row_stride + column : from, real);
    }
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
template <int kSums, class Factor>
__device__ __forceinline__ void store_tokens(const float (&sums)[kSums], Bfloat16* to, std::int64_t row_stride, int row0, int tokens,
                                             Factor factor) {
  constexpr int kWidth = 2 * kSums;
  const int first = row0 + threadIdx.x % kWarpgroup / 32 * 16;
  const auto store = [&](auto& results, int column0) {
    constexpr int kTiles = sizeof(results) / sizeof(results[0]);
#pragma unroll
    for (int i = 0; i < 4 * kTiles; ++i) results[i / 4][i % 4] = sums[column0 / 2 + i] * factor(i);
    store_tiles<Bfloat16>(results, column0, kWidth, true,
                          [&](int row) { return first + row < tokens ? to + (first + row) * row_stride : nullptr; });
  };
  float results[kTileColumns / 8][4];
  store(results, 0);
  if constexpr (kWidth > kTileColumns) {
    float rest[(kWidth - kTileColumns) / 8][4];
    store(rest, kTileColumns);
  }
}

}  // namespace
}  // namespace tessera::kernels
