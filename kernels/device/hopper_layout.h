#pragma once

// How the copy unit and the tensor cores of Hopper GPUs (compute capability 9.0) arrange matrices of bfloat16. Plain C++, for the kernels,
// for their emulation, and for the test that compares these layouts with those of CuTe.
#include <cstdint>

#include "kernels/types.h"

namespace tessera::kernels {

// A tile is a matrix in shared memory with rows of 64 elements (128 bytes), without gaps. It begins at a multiple of 1,024 bytes. The eight
// pieces of 16 bytes of a row are exchanged ("swizzled") such that the same piece of eight consecutive rows lies in different banks.
constexpr int kTileColumns = 64, kTileRowBytes = 128, kTileAlignment = 1024;

/// Returns where the byte is that would be at `address` without the exchange.
TESSERA_HOST_DEVICE constexpr std::uint32_t swizzled(std::uint32_t address) {
  return address ^ (address >> 3 & 0x70u);
}
/// Returns the distance of an element of a tile from the tile's beginning, in bytes.
TESSERA_HOST_DEVICE constexpr int tile_offset(int row, int column) {
  return static_cast<int>(swizzled(static_cast<std::uint32_t>(row * kTileRowBytes + column * 2)));
}

/// An operand of a warpgroup's product in shared memory: a matrix [side, depth], of which one instruction takes 16 elements of the depth.
/// The side is the index that the result keeps: 64 rows of the result for the operand a, and N columns of the result for the operand b.
struct Operand {
  std::uint64_t bits;  // as the instruction expects them
  /// Returns the operand that begins `bytes` bytes later, a multiple of 16.
  TESSERA_HOST_DEVICE constexpr Operand after(int bytes) const { return {bits + static_cast<std::uint64_t>(bytes / 16)}; }
};

/// Whether the depth is the index along the rows of a tile (or of a block of 8 x 8 elements), or the index of the rows.
enum class Depth { kAlongRows, kAcrossRows };

// How much later the next 16 elements of the depth of a tile begin, in bytes. Along rows, a tile has four times 16 elements.
constexpr int kAlongRowsStep = 32, kAcrossRowsStep = 16 * kTileRowBytes;

/// Returns an operand that begins at `address` of the shared memory. `leading` and `stride` are the instruction's leading and stride
/// offsets in bytes; see tile_operand() and block_operand() (hopper.h).
TESSERA_HOST_DEVICE constexpr Operand make_operand(std::uint32_t address, int leading, int stride, bool is_tile) {
  const auto field = [](std::uint32_t bytes) { return static_cast<std::uint64_t>(bytes / 16 & 0x3fffu); };
  return {field(address) | field(static_cast<std::uint32_t>(leading)) << 16 | field(static_cast<std::uint32_t>(stride)) << 32 |
          (is_tile ? std::uint64_t{1} << 62 : 0)};
}
TESSERA_HOST_DEVICE constexpr bool is_tile(Operand operand) {
  return operand.bits >> 62 == 1;
}
/// Returns the address in shared memory at which the tensor cores read an element (side, k) of an operand, with k < 16.
TESSERA_HOST_DEVICE constexpr std::uint32_t element_address(Operand operand, Depth depth, std::uint32_t side, std::uint32_t k) {
  const auto field = [&](int bit) { return static_cast<std::uint32_t>(operand.bits >> bit & 0x3fffu) * 16; };
  const std::uint32_t start = field(0), leading = field(16), stride = field(32);
  const bool along = depth == Depth::kAlongRows;
  if (!is_tile(operand))
    return start + side / 8 * stride + k / 8 * leading + (along ? side % 8 * 16 + k % 8 * 2 : k % 8 * 16 + side % 8 * 2);
  return swizzled(along ? start + side / 8 * stride + side % 8 * 128 + k * 2
                        : start + side / 64 * leading + side % 64 * 2 + k / 8 * stride + k % 8 * 128);
}

// The results of a product [64, N] are distributed over the 128 threads of a warpgroup: sums[i] of a thread is in this row and this column.
TESSERA_HOST_DEVICE constexpr int sum_row(int thread, int i) {
  return thread % 128 / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
}
TESSERA_HOST_DEVICE constexpr int sum_column(int thread, int i) {
  return i / 4 * 8 + thread % 4 * 2 + i % 2;
}
// An operand a [64, 16] in registers: element i of the eight that a thread has (two in each of four words) is in this row at this depth. So
// element i of the 16 columns from column 16 s on of a result is its sums[8 s + i], and a result can be the operand of the next product.
TESSERA_HOST_DEVICE constexpr int register_row(int thread, int i) {
  return sum_row(thread, i);
}
TESSERA_HOST_DEVICE constexpr int register_depth(int thread, int i) {
  return sum_column(thread, i);
}

/// An array of bfloat16 in global memory, [batches, heads, rows, columns], whose tiles the copy unit copies. Strides are in elements. The
/// stride of an index that takes only one value is ignored.
struct TileSource {
  const void* data = nullptr;
  std::int64_t columns = 0, rows = 0, heads = 1, batches = 1;
  std::int64_t row_stride = 0, head_stride = 0, batch_stride = 0;
};
/// Returns the TileSource of `batches` matrices.
template <class AnyRows>
TileSource tile_source(const AnyRows& matrices, std::int64_t batches, std::int64_t rows, std::int64_t columns) {
  return {matrices.data, columns, rows, 1, batches, matrices.row_stride, 0, matrices.batch_stride};
}
/// Returns why the copy unit cannot copy boxes of `box_rows` rows of the array; null if it can.
inline const char* tile_fault(const TileSource& source, int box_rows = 1) {
  const std::int64_t sizes[] = {source.columns, source.rows, source.heads, source.batches};
  const std::int64_t strides[] = {8, source.row_stride, source.head_stride, source.batch_stride};
  if (box_rows < 1 || box_rows > 256) return "a box must have 1 to 256 rows";
  if (reinterpret_cast<std::uintptr_t>(source.data) % 16 != 0) return "the array must begin at a multiple of 16 bytes";
  for (int i = 0; i < 4; ++i) {
    if (sizes[i] < 1 || sizes[i] > std::int64_t{1} << 31) return "each size must be at least 1 and at most 2^31";
    if (sizes[i] > 1 && (strides[i] < 1 || strides[i] % 8 != 0 || strides[i] >= std::int64_t{1} << 39)) {
      return "each stride must be a positive multiple of 16 bytes";
    }
  }
  return nullptr;
}

}  // namespace tessera::kernels
