#pragma once

#include <algorithm>

#include <ATen/core/Tensor.h>

namespace tessera {

/// A part of a matrix that is never held as a whole.
struct Tile {
  std::int64_t row, rows, column, columns;

  at::Tensor rows_of(const at::Tensor& tensor) const { return tensor.narrow(0, row, rows); }
  /// The matrix's columns are rows of the second factor.
  at::Tensor columns_of(const at::Tensor& tensor) const { return tensor.narrow(0, column, columns); }
  /// Where the whole matrix's diagonal crosses this tile's values [rows, columns]; may be empty.
  at::Tensor diagonal_of(const at::Tensor& values) const {
    const std::int64_t offset = row - column;
    return offset < columns && -offset < rows ? values.diagonal(offset) : values.flatten().narrow(0, 0, 0);
  }
};

/// Calls body(tile) for all tiles of a [rows, columns] matrix, `chunk` rows each. A tile has as many columns as stay in
/// a CPU's cache; on other devices all of them.
template <class Body>
void for_each_tile(std::int64_t rows, std::int64_t columns, std::int64_t chunk, bool cpu, Body&& body) {
  constexpr std::int64_t kTileElements = 1 << 19;
  const std::int64_t width = cpu ? std::max<std::int64_t>(256, kTileElements / chunk) : columns;
  for (std::int64_t row = 0; row < rows; row += chunk)
    for (std::int64_t column = 0; column < columns; column += width)
      body(Tile{row, std::min(chunk, rows - row), column, std::min(width, columns - column)});
}

}  // namespace tessera
