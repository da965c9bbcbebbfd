#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace tessera::metrics {

/// Counts the active entries (> 0) of encodings [B, V], batch by batch, for what sparsity_statistics() says of all rows
/// at once. Holds a count for each column and nothing of the rows.
class SparsityMeter {
 public:
  /// encoding [B, V] floating, dense or coalesced sparse COO, of one V in all calls.
  void add(const at::Tensor& encoding);
  std::int64_t rows() const { return rows_; }
  /// Active entries of a row, the mean over rows; 0 where there is none.
  double mean_active() const;
  /// Columns that no row has active.
  std::int64_t dead_columns() const;

 private:
  at::Tensor active_;  // [V] int64, rows in which the column is active
  std::int64_t rows_ = 0;
};

}  // namespace tessera::metrics
