#include "src/evaluation/metrics/sparse_rows.h"

#include <cmath>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

namespace tessera::metrics {
namespace {

/// A matrix of compressed sparse rows. Row i has the entries starts[i], ..., starts[i + 1] - 1.
struct CompressedRows {
  at::Tensor starts;   // [N + 1] int64
  at::Tensor columns;  // [entries] int64
  at::Tensor values;   // [entries] double, the values of each row, divided by its Euclidean norm
  std::int64_t count = 0;

  explicit CompressedRows(const at::Tensor& rows) : count(rows.size(0)) {
    const at::Tensor sparse = rows.is_sparse() ? rows : rows.to_sparse();
    TORCH_CHECK(sparse.is_coalesced(), "sparse_cosines: sparse rows must be coalesced");
    const at::Tensor row = sparse.indices()[0];
    starts = at::_convert_indices_from_coo_to_csr(row.contiguous(), count);
    columns = sparse.indices()[1].contiguous();
    const at::Tensor exact = sparse.values().to(at::kDouble);
    const at::Tensor squares = at::zeros({count}, exact.options()).index_add_(0, row, exact.square());
    values = exact / squares.sqrt().clamp_min(1e-12).index_select(0, row);
  }

  /// Calls f(column, value) for each entry of a row.
  template <class F>
  void for_entries(std::int64_t row, F&& f) const {
    const auto* start = starts.const_data_ptr<std::int64_t>();
    const auto* column = columns.const_data_ptr<std::int64_t>();
    const auto* value = values.const_data_ptr<double>();
    for (std::int64_t i = start[row]; i < start[row + 1]; ++i) f(column[i], value[i]);
  }
};

}  // namespace

at::Tensor narrow_rows(const at::Tensor& rows, std::int64_t begin, std::int64_t count) {
  if (!rows.is_sparse()) return rows.narrow(0, begin, count);
  const at::Tensor indices = rows.indices();
  const at::Tensor ends = at::searchsorted(indices[0].contiguous(), at::tensor({begin, begin + count}, at::kLong));
  const auto first = ends[0].item<std::int64_t>(), entries = ends[1].item<std::int64_t>() - first;
  at::Tensor own = indices.narrow(1, first, entries).clone();
  own[0] -= begin;
  return at::sparse_coo_tensor(own, rows.values().narrow(0, first, entries), {count, rows.size(1)}, rows.options(),
                               /*is_coalesced=*/true);
}

at::Tensor sparse_cosines(const at::Tensor& a, const at::Tensor& b) {
  TORCH_CHECK(a.dim() == 2 && b.dim() == 2 && a.size(1) == b.size(1),
              "sparse_cosines: features must be [N, D] and [M, D], got ", a.sizes(), " and ", b.sizes());
  const CompressedRows left(a), right(b);
  at::Tensor cosines = at::empty({left.count, right.count}, at::kDouble);
  auto* out = cosines.mutable_data_ptr<double>();
  at::parallel_for(0, left.count, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<double> dense(static_cast<std::size_t>(a.size(1)), 0.0);  // a dense copy of one row of the matrix `a`
    for (std::int64_t i = begin; i < end; ++i) {
      left.for_entries(i, [&](std::int64_t column, double value) { dense[static_cast<std::size_t>(column)] = value; });
      for (std::int64_t j = 0; j < right.count; ++j) {
        double sum = 0;
        right.for_entries(
            j, [&](std::int64_t column, double value) { sum += value * dense[static_cast<std::size_t>(column)]; });
        out[i * right.count + j] = sum;
      }
      left.for_entries(i, [&](std::int64_t column, double) { dense[static_cast<std::size_t>(column)] = 0; });
    }
  });
  return cosines;
}

}  // namespace tessera::metrics
