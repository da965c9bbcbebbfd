#pragma once

#include <algorithm>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include "src/ops/thread_pool.h"
#include <tessera/ops/numeric.h>

namespace tessera {

/// A part of a matrix. The whole matrix is never in memory.
struct Tile {
  std::int64_t row, rows, column, columns;
  std::int64_t worker;  // index of the worker that processes the tile; workers run at the same time

  at::Tensor rows_of(const at::Tensor& tensor) const { return tensor.narrow(0, row, rows); }
  /// `tensor` has one row for each column of the matrix. Returns the rows for the tile's columns.
  at::Tensor columns_of(const at::Tensor& tensor) const { return tensor.narrow(0, column, columns); }
  /// Returns this worker's part of a tensor [workers, width, ...] that accumulates values per column.
  at::Tensor part_of(const at::Tensor& tensor) const { return tensor.select(0, worker).narrow(0, 0, columns); }
  /// Returns the part of the whole matrix's diagonal that is inside this tile's `values` [rows, columns]; may be empty.
  at::Tensor diagonal_of(const at::Tensor& values) const {
    const std::int64_t offset = row - column;
    return offset < columns && -offset < rows ? values.diagonal(offset) : values.flatten().narrow(0, 0, 0);
  }
};

/// Iterates over a matrix [rows, columns] in tiles of `chunk` rows. On a CPU, a tile has as many columns as fit into the cache, and
/// each thread processes its own tiles, because operators on one tile are too small to parallelize. On other devices a tile has all
/// columns.
class Tiles {
 public:
  Tiles(std::int64_t rows, std::int64_t columns, std::int64_t chunk, bool cpu)
      : rows_(rows), columns_(columns), chunk_(chunk) {
    constexpr std::int64_t kElements = 1 << 18, kLeast = 256, kMost = 4096;
    width_ = cpu ? std::min(columns, std::clamp(kElements / chunk, kLeast, kMost)) : columns;
    const std::int64_t tiles = (rows + chunk - 1) / chunk;
    workers_ = cpu ? std::min<std::int64_t>(pool_threads(), tiles) : 1;
  }

  std::int64_t workers() const { return workers_; }
  std::int64_t width() const { return width_; }

  /// Calls body(tile) for all tiles, without recording gradients. The body may write only to rows_of() and part_of() of the tile. When all
  /// tiles of a block of columns are done, merge(column, count) must add up the parts of all workers.
  template <class Body, class Merge>
  void walk(Body&& body, Merge&& merge) const {
    for (std::int64_t column = 0; column < columns_; column += width_) {
      const std::int64_t count = std::min(width_, columns_ - column);
      const auto work = [&](int worker) {
        const at::NoGradGuard no_grad;  // grad mode is per thread
        const NoAutocast no_autocast;
        for (std::int64_t row = worker * chunk_; row < rows_; row += workers_ * chunk_)
          body(Tile{row, std::min(chunk_, rows_ - row), column, count, worker});
      };
      if (workers_ == 1)
        work(0);
      else
        run_on_pool(static_cast<int>(workers_), work);
      merge(column, count);
    }
  }

 private:
  std::int64_t rows_, columns_, chunk_, width_, workers_;
};

}  // namespace tessera
