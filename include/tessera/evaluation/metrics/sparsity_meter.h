#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace tessera::metrics {

/// Counts the active entries (> 0) of encodings [B, V] batch by batch; sparsity_statistics() does the same for all rows at once.
/// Holds one count per column.
class SparsityMeter {
 public:
  /// encoding [B, V] floating, dense or coalesced sparse COO, with the same V in all calls.
  void add(const at::Tensor& encoding);
  std::int64_t rows() const { return rows_; }
  /// Returns the mean number of active entries per row; 0 if there are no rows.
  double mean_active() const;
  /// Returns the number of columns that are active in no row.
  std::int64_t dead_columns() const;

 private:
  at::Tensor active_;  // [V] int64, number of rows in which the column is active
  std::int64_t rows_ = 0;
};

}  // namespace tessera::metrics
