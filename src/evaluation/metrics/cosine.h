#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/ATen.h>

namespace tessera::metrics {

/// Divides rows by max(length, 1e-12), in double, so that float32 rounding does not decide near ties.
at::Tensor unit_rows(const at::Tensor& rows);

/// Computes cosines with fixed rows. Equal rows get exactly equal cosines, so that ties are broken by index; a plain matrix
/// product may round equal columns differently.
class CosinesWith {
 public:
  /// `rows` [N, D] of any length.
  explicit CosinesWith(const at::Tensor& rows);
  /// `queries` [..., D] of any length; returns [..., N], in double.
  at::Tensor operator()(const at::Tensor& queries) const;
  /// N and D.
  std::int64_t count() const { return rows_.size(0); }
  std::int64_t width() const { return rows_.size(1); }

 private:
  at::Tensor rows_;   // scaled to length 1
  at::Tensor first_;  // [N] index of the first equal row; undefined if all rows differ
};

/// Calls body(begin, end) over ranges of rows, so that a tile of the cosine matrix has fewer than 4 million numbers.
void for_tiles(std::int64_t rows, std::int64_t columns, const std::function<void(std::int64_t, std::int64_t)>& body);

/// Returns the indices [T, k] of the k greatest values along the last dimension, best first, equal values by index. values [T, M].
at::Tensor best_first(const at::Tensor& values, std::int64_t k);

/// Returns, for every k, the share of ranks in 0..k-1 among the ranks that are not -1; 0 if there are none.
std::vector<double> recall_at(const at::Tensor& ranks, const std::vector<std::int64_t>& topk);

/// Returns the mean of the values that are not -1 (and whose index is not `without`); 0 if there are none.
double mean_of_present(const at::Tensor& values, std::int64_t without = -1);

/// Returns the share of equal entries; 0 if there are no entries.
double share_equal(const at::Tensor& a, const at::Tensor& b);

}  // namespace tessera::metrics
