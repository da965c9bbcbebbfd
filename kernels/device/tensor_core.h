#pragma once

// Matrix products on tensor cores, with operands that arrive in slices through a ring of buffers in shared memory. A warp computes tiles
// of 16 x 8 results. Lane l has a tile's results in columns 2 (l%4) and 2 (l%4) + 1 of row l/4 (sums[0], sums[1]) and of row l/4 + 8
// (sums[2], sums[3]).
#include "kernels/device/pairs.h"

namespace tessera::kernels {
namespace {

/// The layout of a slice in shared memory. Its rows have kRowBytes bytes (64 or 128), in pieces of 16 bytes. The pieces of a row are
/// exchanged such that the same piece of eight consecutive rows lies in different banks.
template <int kRowBytes>
struct Slice {
  static constexpr int kPieces = kRowBytes / 16;
  static constexpr int kSteps = kRowBytes / 32;  // a multiply instruction takes 32 bytes of a row
  /// Returns where a piece begins. Its distance from the piece 2 s + `piece` of the same row (s < kSteps, piece < 2) is given by an
  /// exclusive or with 32 s, also after a multiple of 8 rows has been added.
  static __device__ __forceinline__ int offset(int row, int piece) {
    return row * kRowBytes + ((piece ^ (row / (8 / kPieces) & (kPieces - 1))) * 16);
  }
};

/// Starts copying `rows` rows into a slice, from column column0 on. Writes zeros for columns past `width`, and for rows for which
/// valid(row) is false. If `aligned` is false, copies synchronously, element by element.
template <int kThreads, int kRowBytes, class Element, class Valid>
__device__ __forceinline__ void copy_slice(unsigned char* to, const Element* from, std::int64_t row_stride, int column0, int width,
                                           int rows, bool aligned, Valid valid) {
  constexpr int kPieces = Slice<kRowBytes>::kPieces, kPerPiece = 16 / static_cast<int>(sizeof(Element)), kRowStep = kThreads / kPieces;
  static_assert(kRowStep % 8 == 0, "a thread's rows must have the same order of pieces");
  const int first = threadIdx.x / kPieces, piece = threadIdx.x % kPieces, column = column0 + piece * kPerPiece;
  unsigned char* target = to + Slice<kRowBytes>::offset(first, piece);
  const Element* source = from + first * row_stride + column;
#pragma unroll 1
  for (int row = first; row < rows; row += kRowStep) {
    const bool real = valid(row);
    if (aligned) {
      const bool copies = real && column < width;
      copy_async(target, copies ? source : from, copies);
    } else {
      Element* const elements = reinterpret_cast<Element*>(target);
#pragma unroll 1  // for less code, which appears in several places
      for (int e = 0; e < kPerPiece; ++e) {
        elements[e] = real && column + e < width ? source[e] : from_float<Element>(0.0f);
      }
    }
    target += kRowStep * kRowBytes;
    source += kRowStep * row_stride;
  }
}

/// Up to four buffers of equal size that are filled in turn. While one is being multiplied, the next ones are being filled. There is one
/// barrier per step. With a single buffer, filling and multiplying take turns.
struct Ring {
  static constexpr int kMostStages = 4;
  unsigned char* memory;
  int stage_bytes, stages, steps;

  __device__ __forceinline__ unsigned char* stage(int index) const { return memory + index * stage_bytes; }

  /// Starts the first copies, into all buffers but the last one.
  template <class Load>
  __device__ __forceinline__ void start(Load load) const {
    for (int step = 0; step + 1 < stages; ++step) {
      if (step < steps) load(step, stage(step));
      commit_copies();
    }
  }
  /// Calls load(step, buffer) and compute(step, buffer) for all steps, in order. All threads call this after start(). There is a barrier
  /// before the first compute(), and none after the last one.
  template <class Load, class Compute>
  __device__ __forceinline__ void run(Load load, Compute compute) const {
    int now = 0, next = stages - 1;  // the buffers to multiply and to fill
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      if (stages == 4) wait_for_copies<2>();
      if (stages == 3) wait_for_copies<1>();
      if (stages == 2) wait_for_copies<0>();
      __syncthreads();
      if (step + stages - 1 < steps) load(step + stages - 1, stage(next));
      commit_copies();
      if (stages == 1) {
        wait_for_copies<0>();
        __syncthreads();
      }
      compute(step, stage(now));
      now = now + 1 == stages ? 0 : now + 1;
      next = next + 1 == stages ? 0 : next + 1;
    }
  }
};

/// Operands of multiply instructions. An A holds 16 rows, and a B 8 columns, at the depths of one instruction: 32 bytes of each row. For
/// the shares of lanes, see multiply_bfloat16 and multiply_tf32 in primitives.h. `tf32` matters for float32 only.
template <class Element>
struct TensorCore;

template <>
struct TensorCore<Bfloat16> {
  static constexpr int kDepth = 16;
  struct A {
    std::uint32_t words[4];
  };
  struct B {
    std::uint32_t words[2];
  };
  static __device__ __forceinline__ A prepare_a(const std::uint32_t (&words)[4], bool) {
    return {{words[0], words[1], words[2], words[3]}};
  }
  static __device__ __forceinline__ B prepare_b(std::uint32_t first, std::uint32_t second, bool) { return {{first, second}}; }

  /// Adds the products with the first `count` of the columns' tiles to the sums from sums[first] on.
  template <int kSums, int kTiles>
  static __device__ __forceinline__ void multiply(float (&sums)[kSums][4], int first, const A& a, const B (&b)[kTiles], int count, bool) {
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      if (j < count) multiply_bfloat16(sums[first + j], a.words, b[j].words);
    }
  }

  /// Loads the rows m0 .. m0 + 15 at the depths k0 .. k0 + 15 of a matrix whose depth runs along its rows.
  static __device__ __forceinline__ A load_rows(const Bfloat16* matrix, int pitch, int m0, int k0, bool) {
    const int lane = threadIdx.x % 32;
    A a;
    load_matrices<false>(a.words, matrix + (m0 + lane % 16) * pitch + k0 + lane / 16 * 8);
    return a;
  }
  /// Loads the columns m0 .. m0 + 15 at the depths k0 .. k0 + 15 of a matrix whose depth runs along its columns.
  static __device__ __forceinline__ A load_columns(const Bfloat16* matrix, int pitch, int m0, int k0, bool) {
    const int lane = threadIdx.x % 32;
    A a;
    load_matrices<true>(a.words, matrix + (k0 + lane % 8 + lane / 16 * 8) * pitch + m0 + lane / 8 % 2 * 8);
    return a;
  }
  /// Loads kTiles tiles of 8 columns, from the tile `first` on, at the depths k0 .. k0 + 15 of a slice whose depth runs along its columns.
  template <int kRowBytes, int kTiles>
  static __device__ __forceinline__ void load_columns(B (&b)[kTiles], const unsigned char* slice, int first, int k0, bool) {
    const int lane = threadIdx.x % 32, row = k0 + lane % 16;
    if constexpr (kTiles == 1) {
      load_matrices<true>(b[0].words, slice + Slice<kRowBytes>::offset(row, first));
    } else {
#pragma unroll
      for (int j = 0; j < kTiles; j += 2) {
        std::uint32_t words[4];
        load_matrices<true>(words, slice + Slice<kRowBytes>::offset(row, first + j + lane / 16));
        b[j] = {{words[0], words[1]}};
        b[j + 1] = {{words[2], words[3]}};
      }
    }
  }
};

/// float32 as the sum of two TensorFloat-32 numbers. Of the four partial products, the smallest one is left out, so that the relative error
/// is about 2^-22. With `tf32`, computes only the largest one.
template <>
struct TensorCore<float> {
  static constexpr int kDepth = 8;
  struct A {
    std::uint32_t high[4], low[4];
  };
  struct B {
    std::uint32_t high[2], low[2];
  };
  /// Rounds `value` to TensorFloat-32. The rest needs no rounding, because the tensor core ignores its last bits. If `value` is NaN, its
  /// rounded bits may be those of a number, but the rest is NaN; with `tf32`, this NaN is added to the number.
  static __device__ __forceinline__ void split(std::uint32_t word, bool tf32, std::uint32_t& high, std::uint32_t& low) {
    high = (word + 0x1000u) & 0xffffe000u;
    const float rest = bits_to_float(word) - bits_to_float(high);
    if (tf32) high = float_to_bits(fmaf(rest, 0.0f, bits_to_float(high)));
    low = float_to_bits(rest);
  }
  static __device__ __forceinline__ A prepare_a(const std::uint32_t (&words)[4], bool tf32) {
    A a;
#pragma unroll
    for (int i = 0; i < 4; ++i) split(words[i], tf32, a.high[i], a.low[i]);
    return a;
  }
  static __device__ __forceinline__ B prepare_b(std::uint32_t first, std::uint32_t second, bool tf32) {
    B b;
    split(first, tf32, b.high[0], b.low[0]);
    split(second, tf32, b.high[1], b.low[1]);
    return b;
  }
  template <int kSums, int kTiles>
  static __device__ __forceinline__ void multiply(float (&sums)[kSums][4], int first, const A& a, const B (&b)[kTiles], int count,
                                                  bool tf32) {
    if (!tf32) {
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        if (j < count) multiply_tf32(sums[first + j], a.low, b[j].high);
      }
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        if (j < count) multiply_tf32(sums[first + j], a.high, b[j].low);
      }
    }
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      if (j < count) multiply_tf32(sums[first + j], a.high, b[j].high);
    }
  }

  // The depths of an instruction are 0 .. 7, of which a lane has l%4 and l%4 + 4. Here, these are the matrix's depths 2 (l%4) and
  // 2 (l%4) + 1, in both operands. Then the lanes of a load find their words in different banks.
  static __device__ __forceinline__ A load_rows(const float* matrix, int pitch, int m0, int k0, bool tf32) {
    using Words = Piece<std::uint32_t, 2>;
    const int lane = threadIdx.x % 32;
    const float* const from = matrix + (m0 + lane / 4) * pitch + k0 + lane % 4 * 2;
    const Words upper = word_at<Words>(from), lower = word_at<Words>(from + 8 * pitch);
    return prepare_a({upper.values[0], lower.values[0], upper.values[1], lower.values[1]}, tf32);
  }
  static __device__ __forceinline__ A load_columns(const float* matrix, int pitch, int m0, int k0, bool tf32) {
    const int lane = threadIdx.x % 32;
    const float* const from = matrix + (k0 + lane % 4 * 2) * pitch + m0 + lane / 4;
    return prepare_a(
        {float_to_bits(from[0]), float_to_bits(from[8]), float_to_bits(from[pitch]), float_to_bits(from[pitch + 8])}, tf32);
  }
  template <int kRowBytes, int kTiles>
  static __device__ __forceinline__ void load_columns(B (&b)[kTiles], const unsigned char* slice, int first, int k0, bool tf32) {
    const int lane = threadIdx.x % 32, row = k0 + lane % 4 * 2, piece = lane / 16;
    const auto word = [&](int tile, int k) {
      return word_at<std::uint32_t>(slice + Slice<kRowBytes>::offset(row + k, 2 * tile + piece) + lane / 4 % 4 * 4);
    };
#pragma unroll
    for (int j = 0; j < kTiles; ++j) b[j] = prepare_b(word(first + j, 0), word(first + j, 1), tf32);
  }
};

/// The tiles of a warp in a product of two slices, with the depth along the rows of both. Tile (i, j) has the 16 rows from 16 i on of the
/// first slice, and the 8 rows from 8 (warp + 8 j) on of the second one, for the warp `warp` of a group of 8 warps. Tiles exist for those
/// i whose bit in `rows` is set, and for j < columns.
template <class Element, int kRowBytes, int kRowTiles, int kColumnTiles>
struct SliceProduct {
  static_assert(kColumnTiles % 2 == 0);
  using Core = TensorCore<Element>;
  // Registers hold the tiles of one operand, while those of the other one pass. If they hold rows, columns pass in pairs.
  static constexpr bool kHoldsRows = kRowTiles <= 2;
  static constexpr int kHeldColumns = kHoldsRows ? 2 : kColumnTiles;

  unsigned rows;
  int warp, columns;

  __device__ __forceinline__ static int column_tiles(int warp, int patches) {
    const int tiles = (patches + 7) / 8;
    return tiles > warp ? (tiles - warp + 7) / 8 : 0;
  }
  __device__ __forceinline__ bool has_row(int i) const { return (rows >> i & 1u) != 0; }
  __device__ __forceinline__ int column(int j) const { return 8 * (warp + 8 * j); }

  static __device__ __forceinline__ typename Core::A load_row(const unsigned char* a, int i, int step, bool tf32) {
    const int lane = threadIdx.x % 32;
    std::uint32_t words[4];
    load_matrices<false>(words, a + i * 16 * kRowBytes + (Slice<kRowBytes>::offset(lane % 16, lane / 16) ^ (32 * step)));
    return Core::prepare_a(words, tf32);
  }
  /// Loads the tiles j and j + 1 into b[0] and b[1]. If only the first one exists, the second one is a copy of it.
  __device__ __forceinline__ void load_two(typename Core::B* b, const unsigned char* second, int j, int step, bool tf32) const {
    const int lane = threadIdx.x % 32, mine = j + (lane >= 16 && j + 1 < columns ? 1 : 0);
    std::uint32_t words[4];
    load_matrices<false>(words, second + (Slice<kRowBytes>::offset(column(mine) + lane % 8, lane / 8 % 2) ^ (32 * step)));
    b[0] = Core::prepare_b(words[0], words[1], tf32);
    b[1] = Core::prepare_b(words[2], words[3], tf32);
  }

  /// Adds the products of the slices to the tiles.
  __device__ __forceinline__ void accumulate(float (&sums)[kRowTiles][kColumnTiles][4], const unsigned char* first,
                                             const unsigned char* second, bool tf32) const {
    if (columns == 0) return;
#pragma unroll
    for (int step = 0; step < Slice<kRowBytes>::kSteps; ++step) {
      typename Core::A a[kHoldsRows ? kRowTiles : 1];
#pragma unroll
      for (int i = 0; kHoldsRows && i < kRowTiles; ++i) {
        if (has_row(i)) a[i] = load_row(first, i, step, tf32);
      }
#pragma unroll
      for (int j0 = 0; j0 < kColumnTiles; j0 += kHeldColumns) {
        if (j0 >= columns) continue;
        typename Core::B b[kHeldColumns];
#pragma unroll
        for (int j = 0; j < kHeldColumns; j += 2) {
          if (j0 + j < columns) load_two(b + j, second, j0 + j, step, tf32);
        }
#pragma unroll
        for (int i = 0; i < kRowTiles; ++i) {
          if (!has_row(i)) continue;
          if constexpr (!kHoldsRows) a[0] = load_row(first, i, step, tf32);
          Core::multiply(sums[i], j0, a[kHoldsRows ? i : 0], b, columns - j0, tf32);
        }
      }
    }
  }

  /// Calls visit(i, h, row) for each existing row 16 i + 8 h + l/4 of this lane.
  template <class Visit>
  __device__ __forceinline__ void for_each_row(Visit visit) const {
    const int row = threadIdx.x % 32 / 4;
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
      if (!has_row(i)) continue;
      visit(i, 0, 16 * i + row);
      visit(i, 1, 16 * i + 8 + row);
    }
  }
};

/// Adds up a value of the four lanes that have the same row of a tile.
__device__ __forceinline__ float row_sum(float value) {
  value += __shfl_xor_sync(kAllLanes, value, 1);
  return value + __shfl_xor_sync(kAllLanes, value, 2);
}

/// Lanes n and n + kDistance exchange words: the lower lane gives the second word and the upper lane the first one. Then the lower lane has
/// both lanes' first words, and the upper lane both lanes' second words, in the order of the lanes.
template <int kDistance, class Word>
__device__ __forceinline__ void exchange_words(Word& first, Word& second) {
  const bool upper = (threadIdx.x & kDistance) != 0;
  const Word received = __shfl_xor_sync(kAllLanes, upper ? first : second, kDistance);
  first = upper ? received : first;
  second = upper ? second : received;
}

/// Stores the 16 x 8 tiles of a warp, which are adjacent columns from column0 on. at(row) returns the row's address, or null for a row
/// that is not stored. If `aligned` is true, rows begin at multiples of 16 bytes and have a multiple of 16 bytes. Lanes then exchange
/// results such that each of them stores 16 adjacent bytes (of a single tile, 4 or 8 bytes; of two tiles of bfloat16, 8 bytes).
template <class Element, int kTiles, class At>
__device__ __forceinline__ void store_tiles(const float (&sums)[kTiles][4], int column0, int width, bool aligned, At at) {
  const int lane = threadIdx.x % 32, quarter = lane % 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    Element* const row = at(lane / 4 + 8 * h);
    if (!aligned || kTiles == 1) {
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        if (row != nullptr) store_pair(row, column0 + 8 * j + 2 * quarter, width, sums[j][2 * h], sums[j][2 * h + 1]);
      }
      continue;
    }
    if constexpr (kTiles > 1 && sizeof(Element) == 4) {
#pragma unroll
      for (int j = 0; j < kTiles; j += 2) {
        float values[4] = {sums[j][2 * h], sums[j][2 * h + 1], sums[j + 1][2 * h], sums[j + 1][2 * h + 1]};
        exchange_words<1>(values[0], values[2]);
        exchange_words<1>(values[1], values[3]);
        const int column = column0 + 8 * (j + quarter % 2) + quarter / 2 * 4;
        if (row != nullptr && column < width) {
          word_at<Piece<float, 4>>(row + column) = Piece<float, 4>{{values[0], values[1], values[2], values[3]}};
        }
      }
    } else if constexpr (kTiles > 1) {
      std::uint32_t words[kTiles];  // two columns each
#pragma unroll
      for (int j = 0; j < kTiles; ++j) words[j] = bfloat16_pair(sums[j][2 * h], sums[j][2 * h + 1]);
#pragma unroll
      for (int j = 0; j < kTiles; j += 2) exchange_words<1>(words[j], words[j + 1]);
      if constexpr (kTiles == 2) {
        const int column = column0 + 8 * (quarter % 2) + quarter / 2 * 4;
        if (row != nullptr && column < width) {
          word_at<Piece<std::uint32_t, 2>>(row + column) = Piece<std::uint32_t, 2>{{words[0], words[1]}};
        }
      } else {
        static_assert(kTiles % 4 == 0);
#pragma unroll
        for (int j = 0; j < kTiles; j += 4) {
          exchange_words<2>(words[j], words[j + 2]);
          exchange_words<2>(words[j + 1], words[j + 3]);
          const int column = column0 + 8 * (j + quarter);
          if (row != nullptr && column < width) {
            word_at<Piece<std::uint32_t, 4>>(row + column) =
                Piece<std::uint32_t, 4>{{words[j], words[j + 1], words[j + 2], words[j + 3]}};
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera::kernels
