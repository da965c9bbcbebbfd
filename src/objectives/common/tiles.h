#pragma once

#include <algorithm>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/logaddexp.h>

#include "src/objectives/common/contrast_targets.h"
#include "src/ops/thread_pool.h"
#include <tessera/ops/numeric.h>

namespace tessera {

/// Sets values[mask] = value; an undefined mask is false everywhere.
inline void fill_where(const at::Tensor& values, const at::Tensor& mask, double value) {
  if (mask.defined()) values.masked_fill_(mask, value);
}

/// Sets total = log(exp(total) + exp(logarithms)).
inline void add_exponentials(at::Tensor total, const at::Tensor& logarithms) {
  total.copy_(at::logaddexp(total, logarithms));
}

/// A part of a matrix. The whole matrix is never in memory.
struct Tile {
  std::int64_t row, rows, column, columns;
  std::int64_t slot;  // index of the worker that processes the tile; workers run at the same time

  at::Tensor rows_of(const at::Tensor& tensor) const { return tensor.narrow(0, row, rows); }
  /// `tensor` has one row for each column of the matrix. Returns the rows for the tile's columns.
  at::Tensor columns_of(const at::Tensor& tensor) const { return tensor.narrow(0, column, columns); }
  /// Returns this slot's part of a tensor [slots, width, ...] that accumulates values per column.
  at::Tensor slot_of(const at::Tensor& tensor) const { return tensor.select(0, slot).narrow(0, 0, columns); }
  /// Returns ContrastTargets::left_out() for this tile, bool [rows, columns] or undefined. The tile's rows are images of `rank`, and its
  /// columns are texts of `owner`. Both ranks have `batch` pairs.
  at::Tensor left_out_of(const ContrastTargets& targets, std::int64_t batch, int rank, int owner) const {
    return targets.left_out(rank * batch + row, rows, owner * batch + column, columns);
  }
  /// Returns the part of the whole matrix's diagonal that is inside this tile's `values` [rows, columns]; may be empty.
  at::Tensor diagonal_of(const at::Tensor& values) const {
    const std::int64_t offset = row - column;
    return offset < columns && -offset < rows ? values.diagonal(offset) : values.flatten().narrow(0, 0, 0);
  }
};

/// Iterates over a matrix [rows, columns] in tiles of `chunk` rows. On a CPU, a tile has as many columns as fit into the cache, and
/// each thread processes its own tiles, because operators on one tile are too small to parallelize. On other devices a tile has all
/// columns. `depth` is the number of values per matrix entry.
class Tiles {
 public:
  Tiles(std::int64_t rows, std::int64_t columns, std::int64_t chunk, bool cpu, std::int64_t depth = 1)
      : rows_(rows), columns_(columns), chunk_(chunk) {
    constexpr std::int64_t kElements = 1 << 18, kLeast = 256, kMost = 4096;
    const std::int64_t width = std::clamp(kElements / chunk, kLeast, kMost) / depth;
    width_ = cpu ? std::min(columns, std::max<std::int64_t>(1, width)) : columns;
    const std::int64_t tiles = (rows + chunk - 1) / chunk;
    slots_ = cpu ? std::min<std::int64_t>(pool_threads(), tiles) : 1;
  }

  std::int64_t slots() const { return slots_; }
  std::int64_t width() const { return width_; }

  /// Calls body(tile) for all tiles, without recording gradients. The body may write only to rows_of() and slot_of() of the tile. When all
  /// tiles of a block of columns are done, merge(column, count) must add up the parts of all slots.
  template <class Body, class Merge>
  void walk(Body&& body, Merge&& merge) const {
    for (std::int64_t column = 0; column < columns_; column += width_) {
      const std::int64_t count = std::min(width_, columns_ - column);
      const auto work = [&](int slot) {
        const at::NoGradGuard no_grad;  // grad mode is per thread
        const NoAutocast no_autocast;
        for (std::int64_t row = slot * chunk_; row < rows_; row += slots_ * chunk_)
          body(Tile{row, std::min(chunk_, rows_ - row), column, count, slot});
      };
      if (slots_ == 1)
        work(0);
      else
        run_on_pool(static_cast<int>(slots_), work);
      merge(column, count);
    }
  }

 private:
  std::int64_t rows_, columns_, chunk_, width_, slots_;
};

}  // namespace tessera
