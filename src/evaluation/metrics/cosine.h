#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/ATen.h>

namespace tessera::metrics {

/// Divides each row by max(norm, 1e-12), in double precision, so that near ties are not decided by float32 rounding.
at::Tensor unit_rows(const at::Tensor& rows);

/// Computes cosines with fixed rows. Equal rows get exactly equal cosines, so that ties are broken by index. (A plain matrix
/// product may round equal columns differently.)
class CosinesWith {
 public:
  /// rows: [N, D], which need not be normalized.
  explicit CosinesWith(const at::Tensor& rows);
  /// Returns the cosines of queries [..., D] with the N rows, double [..., N]. The queries need not be normalized.
  at::Tensor operator()(const at::Tensor& queries) const;
  /// Returns N. width() returns D.
  std::int64_t count() const { return rows_.size(0); }
  std::int64_t width() const { return rows_.size(1); }

 private:
  at::Tensor rows_;   // scaled to norm 1
  at::Tensor first_;  // [N], for each row the index of the first equal row; undefined if all rows differ
};

/// Calls body(begin, end) for consecutive ranges of rows. The ranges are so short that a matrix with the rows of one range and all columns
/// has only about 4 million entries.
void for_tiles(std::int64_t rows, std::int64_t columns, const std::function<void(std::int64_t, std::int64_t)>& body);

/// Returns the indices [T, k] of the k greatest values in each row of values [T, M], best first. Equal values are ordered by index.
at::Tensor best_first(const at::Tensor& values, std::int64_t k);

/// Returns the rank of each query's best correct candidate, int64 [T], counted from 0; -1 if the query has none. A candidate is correct if
/// it has the same id as the query, and this id is not negative. Equal scores are ordered by index; a correct candidate whose score is NaN
/// ranks last. scores: [T, M]. query_id: int64 [T]. candidate_id: int64 [M], M at least 1.
at::Tensor best_right_rank(const at::Tensor& scores, const at::Tensor& query_id, const at::Tensor& candidate_id);

/// For every k in `topk`, returns the share of ranks that are below k. Leaves out ranks of -1. Returns 0 if all ranks are -1.
std::vector<double> recall_at(const at::Tensor& ranks, const std::vector<std::int64_t>& topk);

/// Returns the mean of the values that are present (not -1). If `without` is not -1, leaves out the value at this index. Returns 0 if no
/// values are left.
double mean_of_present(const at::Tensor& values, std::int64_t without = -1);

/// Returns the share of entries in which a and b are equal; 0 if there are no entries.
double share_equal(const at::Tensor& a, const at::Tensor& b);

}  // namespace tessera::metrics
