// Small float32 matrix products with GCC's vector extensions, for one instruction set. A product is C[m, n] (+)= sum_k A[m, k] B[k, n]. B
// is packed into panels that are one or two vectors wide. A is not packed; its elements are broadcast to vectors. A may be contiguous along
// its rows (k adjacent) or along its columns (m adjacent).
//
// Each source that includes this file is compiled with its own -m flags. Before it includes this file, it defines
//   TESSERA_VECTOR  the number of floats in a vector register
//   TESSERA_ROWS    the number of rows of C that are computed together; this takes TESSERA_ROWS * 2 + 3 vector registers
// Everything has internal linkage, and nothing here may instantiate templates of the standard library. Otherwise the linker could choose an
// AVX-512 instance for the whole program, which would then crash on machines without AVX-512.
#include <cstdint>

#include "kernels/types.h"

namespace tessera::kernels {
namespace {

constexpr int kVector = TESSERA_VECTOR;
constexpr int kPanel = 2 * kVector;
constexpr int kTileRows = TESSERA_ROWS;
/// How many values of k are summed at a time. A panel of this depth stays in the first-level cache while all rows are processed.
constexpr int kDepthBlock = 128;

typedef float Vector __attribute__((vector_size(4 * TESSERA_VECTOR)));
typedef std::int32_t IntVector __attribute__((vector_size(4 * TESSERA_VECTOR)));
typedef float UnalignedVector __attribute__((vector_size(4 * TESSERA_VECTOR), aligned(4), may_alias));

inline Vector load(const float* from) {
  return *reinterpret_cast<const UnalignedVector*>(from);
}
inline void store(float* to, Vector value) {
  *reinterpret_cast<UnalignedVector*>(to) = value;
}
/// Returns a vector of copies of `value`. The subtraction of zero compiles to a load with broadcast, because x - 0 is x for every x. An
/// addition of zero would not, because x + 0 turns -0 into 0.
inline Vector broadcast(float value) {
  return value - Vector{};
}
inline Vector select(IntVector condition, Vector yes, Vector no) {
  return condition ? yes : no;
}
inline std::int64_t smaller(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}
inline std::int64_t larger(std::int64_t a, std::int64_t b) {
  return a > b ? a : b;
}
inline std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// Adds `factor` times `from` to `to`, element by element.
inline void add_scaled(float* to, const float* from, float factor, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + kVector <= count; i += kVector) store(to + i, load(to + i) + factor * load(from + i));
  for (; i < count; ++i) to[i] += factor * from[i];
}

/// Scratch memory, handed out in multiples of 64 bytes.
struct Scratch {
  float* next;
  float* take(std::int64_t floats) {
    float* const taken = next;
    next += round_up(floats, 16);
    return taken;
  }
};

/// The layout of A. kRowsContiguous: A[m, k] = a[m * stride + k]. kColumnsContiguous: A[m, k] = a[k * stride + m].
enum class Layout { kRowsContiguous, kColumnsContiguous };

/// Reads an element of row kRow, one of seven rows that are `stride` bytes apart. Uses only three index registers (1, 3 and 5 times the
/// stride) for all of these rows. Otherwise the compiler would keep a pointer for each row and spill the pointers.
template <int kRow>
inline float element(const char* base, std::int64_t stride, std::int64_t stride3, std::int64_t stride5) {
  constexpr int kScale = kRow == 6 ? 2 : kRow == 3 || kRow == 5 ? 1 : kRow;
  const std::int64_t step = kRow == 3 || kRow == 6 ? stride3 : kRow == 5 ? stride5 : stride;
  return *reinterpret_cast<const float*>(base + kScale * step);
}

template <Layout kLayout, int kRow>
inline float element(const char* low, const char* high, std::int64_t stride, std::int64_t stride3,
                     std::int64_t stride5) {
  if constexpr (kLayout == Layout::kColumnsContiguous) {
    return reinterpret_cast<const float*>(low)[kRow];
  } else if constexpr (kRow < 7) {
    return element<kRow>(low, stride, stride3, stride5);
  } else {
    return element<kRow - 7>(high, stride, stride3, stride5);
  }
}

template <Layout kLayout, int kRows, int kVectors>
struct RegisterTile {
  Vector sums[kRows][kVectors];

  template <int kRow = 0>
  inline __attribute__((always_inline)) void add(const char* low, const char* high, std::int64_t stride,
                                                 std::int64_t stride3, std::int64_t stride5, const Vector* b) {
    if constexpr (kRow < kRows) {
      const Vector a = broadcast(element<kLayout, kRow>(low, high, stride, stride3, stride5));
      for (int v = 0; v < kVectors; ++v) sums[kRow][v] += a * b[v];
      add<kRow + 1>(low, high, stride, stride3, stride5, b);
    }
  }
};

/// Computes C[kRows, kVectors * kVector] (+)= A[kRows, depth] panel[depth, kVectors * kVector].
template <Layout kLayout, int kRows, int kVectors>
void multiply_tile(std::int64_t depth, const float* a, std::int64_t a_stride, const float* panel, float* c,
                   std::int64_t c_stride, bool accumulate) {
  RegisterTile<kLayout, kRows, kVectors> tile;
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) tile.sums[r][v] = accumulate ? load(c + r * c_stride + v * kVector) : Vector{};
  }
  const std::int64_t stride = a_stride * static_cast<std::int64_t>(sizeof(float));
  std::int64_t stride3 = 3 * stride, stride5 = 5 * stride;
  const std::int64_t step = kLayout == Layout::kRowsContiguous ? static_cast<std::int64_t>(sizeof(float)) : stride;
  const char* low = reinterpret_cast<const char*>(a);
  const char* high = low + 7 * stride;
  asm("" : "+r"(stride3), "+r"(stride5), "+r"(high));  // keeps the compiler from merging these registers; see element()
#pragma GCC unroll 4
  for (std::int64_t k = 0; k < depth; ++k) {
    Vector b[kVectors];
    for (int v = 0; v < kVectors; ++v) b[v] = load(panel + v * kVector);
    tile.add(low, high, stride, stride3, stride5, b);
    low += step;
    high += step;
    panel += kVectors * kVector;
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) store(c + r * c_stride + v * kVector, tile.sums[r][v]);
  }
}

using MultiplyTile = void (*)(std::int64_t, const float*, std::int64_t, const float*, float*, std::int64_t, bool);

/// Returns the instance of multiply_tile() for tiles with `rows` rows (1 .. kTileRows).
template <Layout kLayout, int kVectors, int kRows = kTileRows>
MultiplyTile tile_for(std::int64_t rows) {
  if constexpr (kRows == 1) {
    return multiply_tile<kLayout, 1, kVectors>;
  } else {
    return rows == kRows ? multiply_tile<kLayout, kRows, kVectors> : tile_for<kLayout, kVectors, kRows - 1>(rows);
  }
}

/// Returns the width of a panel: one vector if `columns` fit into one vector, otherwise two.
inline int panel_width(std::int64_t columns) {
  return columns <= kVector ? kVector : kPanel;
}

template <Layout kLayout>
MultiplyTile tile_for(std::int64_t rows, int width) {
  return width == kVector ? tile_for<kLayout, 1>(rows) : tile_for<kLayout, 2>(rows);
}

/// Transposes a kVector x kVector matrix in registers. First exchanges the two off-diagonal blocks of half the matrix's width. Then does
/// the same within each of the four blocks, and so on.
inline void transpose(Vector* rows) {
#if defined(__clang__)
  for (int i = 0; i < kVector; ++i) {
    for (int j = 0; j < i; ++j) {
      const float upper = rows[j][i];
      rows[j][i] = rows[i][j];
      rows[i][j] = upper;
    }
  }
#else
#pragma GCC unroll 4
  for (int half = kVector / 2; half >= 1; half /= 2) {
    IntVector keep_first{}, keep_second{};
    for (int c = 0; c < kVector; ++c) {
      keep_first[c] = (c & half) == 0 ? c : kVector + c - half;
      keep_second[c] = (c & half) == 0 ? c + half : kVector + c;
    }
#pragma GCC unroll 16
    for (int i = 0; i < kVector; ++i) {
      if ((i & half) != 0) continue;
      const Vector first = rows[i], second = rows[i + half];
      rows[i] = __builtin_shuffle(first, second, keep_first);
      rows[i + half] = __builtin_shuffle(first, second, keep_second);
    }
  }
#endif
}

/// Rows of a matrix that are selected by index. Row i is at data + index[i] * stride. If index is null, row i is at
/// data + i * stride.
struct PickedRows {
  const float* data;
  std::int64_t stride;
  const std::int32_t* index;
  const float* row(std::int64_t i) const { return data + (index == nullptr ? i : index[i]) * stride; }
};

/// Treats all `parts`, which have `rows` rows each, as one matrix. Writes row first + c of this matrix as column c of panel[depth, width].
/// If the matrix has no row first + c, column c is set to zero.
inline void pack_transposed(const PickedRows* parts, int part_count, std::int64_t rows, std::int64_t first, int width,
                            std::int64_t depth, float* panel) {
  for (int group = 0; group < width; group += kVector) {
    const float* source[kVector];
    for (int i = 0; i < kVector; ++i) {
      const std::int64_t row = first + group + i;
      source[i] = row < rows * part_count ? parts[row / rows].row(row % rows) : nullptr;
    }
    std::int64_t k = 0;
    for (; k + kVector <= depth; k += kVector) {
      Vector block[kVector];
      for (int i = 0; i < kVector; ++i) block[i] = source[i] != nullptr ? load(source[i] + k) : Vector{};
      transpose(block);
      for (int i = 0; i < kVector; ++i) store(panel + (k + i) * width + group, block[i]);
    }
    for (; k < depth; ++k) {
      for (int i = 0; i < kVector; ++i) panel[k * width + group + i] = source[i] != nullptr ? source[i][k] : 0.0f;
    }
  }
}

/// For each row k of `source`, packs columns [first, first + columns) into panel[k, 0 .. width). The rest of the panel row is set to zero.
inline void pack_columns(const PickedRows& source, std::int64_t rows, std::int64_t first, std::int64_t columns,
                         int width, float* panel) {
  for (std::int64_t k = 0; k < rows; ++k, panel += width) {
    const float* from = source.row(k) + first;
    if (columns == width) {
      for (int c = 0; c < width; c += kVector) store(panel + c, load(from + c));
    } else {
      for (int c = 0; c < width; ++c) panel[c] = c < columns ? from[c] : 0.0f;
    }
  }
}

/// Computes C[rows, width] = A[rows, depth] panel[depth, width].
inline void multiply_panel(std::int64_t rows, std::int64_t depth, const float* a, std::int64_t a_stride,
                           const float* panel, int width, float* c, std::int64_t c_stride) {
  for (std::int64_t k = 0; k < depth; k += kDepthBlock) {
    for (std::int64_t m = 0; m < rows; m += kTileRows) {
      const std::int64_t tile_rows = smaller(kTileRows, rows - m);
      tile_for<Layout::kRowsContiguous>(tile_rows, width)(smaller(kDepthBlock, depth - k), a + m * a_stride + k,
                                                          a_stride, panel + k * width, c + m * c_stride, c_stride,
                                                          k > 0);
    }
  }
}

/// Computes C[rows, n] = A[rows, depth] B^T. The n rows of B are the rows of all `parts`, in order. Each row of C must have room for n
/// rounded up to a multiple of kVector; the additional columns are written too. `panel` has room for kPanel * depth floats.
inline void multiply_by_transposed(std::int64_t rows, std::int64_t depth, const float* a, std::int64_t a_stride,
                                   const PickedRows* parts, int part_count, std::int64_t part_rows, float* c,
                                   std::int64_t c_stride, float* panel) {
  const std::int64_t columns = part_rows * part_count;
  for (std::int64_t n = 0; n < columns;) {
    const int width = panel_width(columns - n);
    pack_transposed(parts, part_count, part_rows, n, width, depth, panel);
    multiply_panel(rows, depth, a, a_stride, panel, width, c + n, c_stride);
    n += width;
  }
}

/// Together, these two functions do the same as multiply_by_transposed(), for a B that is used in many products. pack_panels() packs B into
/// `panels`, which has room for round_up(columns, kVector) * depth floats. multiply_panels() computes the product.
inline void pack_panels(const PickedRows& b, std::int64_t columns, std::int64_t depth, float* panels) {
  for (std::int64_t n = 0; n < columns;) {
    const int width = panel_width(columns - n);
    pack_transposed(&b, 1, columns, n, width, depth, panels + n * depth);
    n += width;
  }
}
inline void multiply_panels(std::int64_t rows, std::int64_t depth, const float* a, std::int64_t a_stride,
                            const float* panels, std::int64_t columns, float* c, std::int64_t c_stride) {
  for (std::int64_t n = 0; n < columns;) {
    const int width = panel_width(columns - n);
    multiply_panel(rows, depth, a, a_stride, panels + n * depth, width, c + n, c_stride);
    n += width;
  }
}

/// The place to which a product is written. Row r of the product goes to row index[r] of `data`, converted to `type`.
struct Destination {
  void* data;
  std::int64_t stride;
  const std::int32_t* index;
  DataType type;

  void put(const float* tile, std::int64_t tile_stride, std::int64_t first_row, std::int64_t rows,
           std::int64_t first_column, std::int64_t columns, bool add) const {
    for (std::int64_t r = 0; r < rows; ++r, tile += tile_stride) {
      const std::int64_t row = index == nullptr ? first_row + r : index[first_row + r];
      const std::int64_t offset = row * stride + first_column;
      if (type == DataType::kBfloat16) {
        std::uint16_t* to = static_cast<std::uint16_t*>(data) + offset;
        for (std::int64_t c = 0; c < columns; ++c) to[c] = float_to_bfloat16(tile[c]);
        continue;
      }
      float* to = static_cast<float*>(data) + offset;
      std::int64_t c = 0;
      for (; c + kVector <= columns; c += kVector) store(to + c, add ? load(to + c) + load(tile + c) : load(tile + c));
      for (; c < columns; ++c) to[c] = add ? to[c] + tile[c] : tile[c];
    }
  }
};

/// Computes destination (+)= A[rows, depth] B[depth, columns]. The rows of B are the rows of all `parts`, in order. `panel` has room for
/// kPanel * depth floats.
template <Layout kLayout>
void multiply(std::int64_t rows, std::int64_t columns, const float* a, std::int64_t a_stride, const PickedRows* parts,
              int part_count, std::int64_t part_rows, const Destination& destination, bool add, float* panel) {
  const std::int64_t depth = part_rows * part_count;
  alignas(64) float tile[kTileRows * kPanel];
  for (std::int64_t n = 0; n < columns; n += kPanel) {
    const std::int64_t tile_columns = smaller(kPanel, columns - n);
    const int width = panel_width(tile_columns);
    for (int part = 0; part < part_count; ++part) {
      pack_columns(parts[part], part_rows, n, tile_columns, width, panel + part * part_rows * width);
    }
    for (std::int64_t m = 0; m < rows; m += kTileRows) {
      const std::int64_t tile_rows = smaller(kTileRows, rows - m);
      const float* a_tile = kLayout == Layout::kRowsContiguous ? a + m * a_stride : a + m;
      tile_for<kLayout>(tile_rows, width)(depth, a_tile, a_stride, panel, tile, width, false);
      destination.put(tile, width, m, tile_rows, n, tile_columns, add);
    }
  }
}

}  // namespace
}  // namespace tessera::kernels
