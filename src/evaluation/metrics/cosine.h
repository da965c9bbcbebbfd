#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/ATen.h>

namespace tessera::metrics {

/// Rows over max(length, 1e-12), in double: near ties must not turn on float32's rounding.
at::Tensor unit_rows(const at::Tensor& rows);

/// Cosines with rows that stay. Equal ones have equal cosines, so that ties go by index: a product of matrices rounds each
/// column by its place.
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
  at::Tensor rows_;   // of length 1
  at::Tensor first_;  // [N] the first row that is equal; undefined: all differ
};

/// Calls body(begin, end) over row ranges so that a tile of the cosine matrix stays below 4 million numbers.
void for_tiles(std::int64_t rows, std::int64_t columns, const std::function<void(std::int64_t, std::int64_t)>& body);

/// Best first along the last dimension: greatest value, equal values by index. values [T, M]; returns indices [T, k].
at::Tensor best_first(const at::Tensor& values, std::int64_t k);

/// Share of ranks in 0..k-1 among the ranks that are not -1, for every k; 0 where there is none.
std::vector<double> recall_at(const at::Tensor& ranks, const std::vector<std::int64_t>& topk);

/// Mean of the values that are not -1 (and whose index is not `without`); 0 where there is none.
double mean_of_present(const at::Tensor& values, std::int64_t without = -1);

/// Share of equal entries; 0 for none.
double share_equal(const at::Tensor& a, const at::Tensor& b);

}  // namespace tessera::metrics
