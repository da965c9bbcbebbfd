#pragma once

// Matrix products of operands in shared memory. A warp computes tiles of 16 x 8 results, which are distributed over its 32 lanes as on a
// tensor core. Lane l has the tile's results in columns 2 (l%4) and 2 (l%4) + 1 of the rows l/4 and l/4 + 8. Its sums[0] and sums[1] are
// the results in row l/4, and its sums[2] and sums[3] those in row l/4 + 8. float32 uses the same distribution, with ordinary
// multiply-adds.
#include "kernels/device/primitives.h"

namespace tessera::kernels {
namespace {

/// The layout of an operand in shared memory. The depth is the index that is summed over. It runs along a row (kRow),
/// or from one row to the next (kColumn).
enum class DepthAlong { kRow, kColumn };

template <class Element>
struct Fragments;

template <>
struct Fragments<Bfloat16> {
  static constexpr int kStep = 16;  // depth of one multiply instruction
  struct A {
    std::uint32_t registers[4];
  };
  struct B {
    std::uint32_t registers[2];
  };

  /// Loads the elements in rows m0 .. m0 + 15 at the depths k0 .. k0 + 15. Consecutive rows of `tile` are `pitch` elements apart; this
  /// distance must be a multiple of 16 bytes.
  template <DepthAlong kDepth>
  static __device__ __forceinline__ void load(A& a, const Bfloat16* tile, int pitch, int m0, int k0) {
    const int lane = threadIdx.x % 32;
    if constexpr (kDepth == DepthAlong::kRow) {
      load_matrices<false>(a.registers, tile + (m0 + lane % 16) * pitch + k0 + lane / 16 * 8);
    } else {
      load_matrices<true>(a.registers, tile + (k0 + lane % 8 + lane / 16 * 8) * pitch + m0 + lane / 8 % 2 * 8);
    }
  }
  /// Loads the elements in columns n0 .. n0 + 7 at the depths k0 .. k0 + 15.
  template <DepthAlong kDepth>
  static __device__ __forceinline__ void load(B& b, const Bfloat16* tile, int pitch, int n0, int k0) {
    const int lane = threadIdx.x % 16;  // the instruction ignores the addresses of the upper lanes
    if constexpr (kDepth == DepthAlong::kRow) {
      load_matrices<false>(b.registers, tile + (n0 + lane % 8) * pitch + k0 + lane / 8 * 8);
    } else {
      load_matrices<true>(b.registers, tile + (k0 + lane) * pitch + n0);
    }
  }
  static __device__ __forceinline__ void multiply(float (&sums)[4], const A& a, const B& b) {
    multiply_bfloat16(sums, a.registers, b.registers);
  }
};

template <>
struct Fragments<float> {
  static constexpr int kStep = 4;
  struct A {
    float rows[2][4];  // [row l/4 or l/4 + 8][depth]
  };
  struct B {
    float columns[2][4];
  };

  static __device__ __forceinline__ void load_row(float (&to)[4], const float* from) {
    const float4 value = word_at<float4>(from);
    to[0] = value.x;
    to[1] = value.y;
    to[2] = value.z;
    to[3] = value.w;
  }
  template <DepthAlong kDepth>
  static __device__ __forceinline__ void load(A& a, const float* tile, int pitch, int m0, int k0) {
    const int row = m0 + threadIdx.x % 32 / 4;
    if constexpr (kDepth == DepthAlong::kRow) {
      load_row(a.rows[0], tile + row * pitch + k0);
      load_row(a.rows[1], tile + (row + 8) * pitch + k0);
    } else {
      for (int k = 0; k < kStep; ++k) {
        a.rows[0][k] = tile[(k0 + k) * pitch + row];
        a.rows[1][k] = tile[(k0 + k) * pitch + row + 8];
      }
    }
  }
  template <DepthAlong kDepth>
  static __device__ __forceinline__ void load(B& b, const float* tile, int pitch, int n0, int k0) {
    const int column = n0 + threadIdx.x % 4 * 2;
    if constexpr (kDepth == DepthAlong::kRow) {
      load_row(b.columns[0], tile + column * pitch + k0);
      load_row(b.columns[1], tile + (column + 1) * pitch + k0);
    } else {
      for (int k = 0; k < kStep; ++k) {
        const float2 pair = word_at<float2>(tile + (k0 + k) * pitch + column);
        b.columns[0][k] = pair.x;
        b.columns[1][k] = pair.y;
      }
    }
  }
  static __device__ __forceinline__ void multiply(float (&sums)[4], const A& a, const B& b) {
    for (int k = 0; k < kStep; ++k) {
      for (int i = 0; i < 4; ++i) sums[i] = fmaf(a.rows[i / 2][k], b.columns[i % 2][k], sums[i]);
    }
  }
};

/// The 16 x 8 tiles that a warp computes. Tile (i, j) starts at row m(i) and column n(j). A tile is computed only if
/// bit i of `rows` is set and n(j) is below `columns`.
struct WarpTiles {
  int m0, m_step;
  unsigned rows;
  int n0, n_step, columns;
  __device__ __forceinline__ int m(int i) const { return m0 + i * m_step; }
  __device__ __forceinline__ int n(int j) const { return n0 + j * n_step; }
  __device__ __forceinline__ bool has_row(int i) const { return (rows >> i & 1u) != 0; }
  __device__ __forceinline__ bool has_column(int j) const { return n(j) < columns; }
};

/// Computes sums[i][j] += A[m(i), k] B[k, n(j)], summed over k = 0 .. depth - 1. `depth` is a multiple of kStep. The
/// operand with fewer tiles stays in registers, while the other one is read tile by tile.
template <DepthAlong kDepthA, DepthAlong kDepthB, class Element, int kRows, int kColumns>
__device__ __forceinline__ void accumulate(float (&sums)[kRows][kColumns][4], const WarpTiles& tiles, int depth,
                                           const Element* a, int a_pitch, const Element* b, int b_pitch) {
  using F = Fragments<Element>;
  for (int k = 0; k < depth; k += F::kStep) {
    if constexpr (kRows < kColumns) {
      typename F::A held[kRows];
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        if (tiles.has_row(i)) F::template load<kDepthA>(held[i], a, a_pitch, tiles.m(i), k);
      }
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        if (!tiles.has_column(j)) continue;
        typename F::B passing;
        F::template load<kDepthB>(passing, b, b_pitch, tiles.n(j), k);
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
          if (tiles.has_row(i)) F::multiply(sums[i][j], held[i], passing);
        }
      }
    } else {
      typename F::B held[kColumns];
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        if (tiles.has_column(j)) F::template load<kDepthB>(held[j], b, b_pitch, tiles.n(j), k);
      }
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        if (!tiles.has_row(i)) continue;
        typename F::A passing;
        F::template load<kDepthA>(passing, a, a_pitch, tiles.m(i), k);
#pragma unroll
        for (int j = 0; j < kColumns; ++j) {
          if (tiles.has_column(j)) F::multiply(sums[i][j], passing, held[j]);
        }
      }
    }
  }
}

/// Calls put(row, column, value, next value) for each pair of adjacent results that this lane has in the warp's tiles.
/// The next value is the result in column + 1.
template <int kRows, int kColumns, class Put>
__device__ __forceinline__ void for_each_pair(const float (&sums)[kRows][kColumns][4], const WarpTiles& tiles,
                                              Put put) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      if (!tiles.has_row(i) || !tiles.has_column(j)) continue;
      const int row = tiles.m(i) + lane / 4, column = tiles.n(j) + lane % 4 * 2;
      put(row, column, sums[i][j][0], sums[i][j][1]);
      put(row + 8, column, sums[i][j][2], sums[i][j][3]);
    }
  }
}

template <int kRows, int kColumns>
__device__ __forceinline__ void clear(float (&sums)[kRows][kColumns][4]) {
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[i][j][e] = 0.0f;
    }
  }
}

}  // namespace
}  // namespace tessera::kernels
