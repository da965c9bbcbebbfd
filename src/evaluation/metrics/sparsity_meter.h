#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace tessera::metrics {

/// Counts the active entries (> 0) of encodings [B, V] (STAIR, section 5), batch by batch. Stores one count per column.
class SparsityMeter {
 public:
  /// Adds a batch. encoding: floating-point [B, V], dense or coalesced sparse COO; V must be the same in all calls.
  void add(const at::Tensor& encoding);
  std::int64_t rows() const { return rows_; }
  /// Returns the mean number of active entries per row; 0 if there are no rows.
  double mean_active() const;
  /// Returns the number of columns that are not active in any row.
  std::int64_t dead_columns() const;
  /// Returns the cost of comparing two rows: the sum over columns of (share of rows in which the column is active)^2; 0 if there are no
  /// rows.
  double expected_flops() const;

 private:
  at::Tensor active_;  // [V] int64, number of rows in which the column is active
  std::int64_t rows_ = 0;
};

}  // namespace tessera::metrics
