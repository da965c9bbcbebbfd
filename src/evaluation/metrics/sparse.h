#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera::metrics {

/// Returns the rows begin, ..., begin + count - 1 of a matrix, which is dense or coalesced sparse COO. A dense result shares memory
/// with the matrix.
at::Tensor narrow_rows(const at::Tensor& rows, std::int64_t begin, std::int64_t count);

/// Returns the cosines, double [N, M], between the rows of `a` [N, D] and the rows of `b` [M, D], two matrices that are mostly zero. The
/// matrices are floating-point, dense or coalesced sparse COO, and on the CPU. The time is proportional to N times the number of nonzero
/// entries of `b`. Needs additional memory for the nonzero entries of `a` and `b` and for D numbers per thread. A row whose Euclidean norm
/// is below 1e-12 counts as having the norm 1e-12.
at::Tensor sparse_cosines(const at::Tensor& a, const at::Tensor& b);

/// Returns STAIR's rank of the class name among all vocabulary entries, ordered by activation. The rank is the number of entries whose
/// activation is at least the greatest activation of the class's tokens. It is therefore at least 1, and ties count against the class. A
/// class without tokens has rank V + 1. activations: float [N, V]. labels: int64 [N]. class_token_ids: int64 [C, S], -1 for padding.
/// Returns int64 [N], -1 for an image without a label.
at::Tensor interpretability_ranking(const at::Tensor& activations, const at::Tensor& labels, const at::Tensor& class_token_ids);

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
