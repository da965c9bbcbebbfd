#include "src/evaluation/metrics/sparse.h"

#include <cmath>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "src/evaluation/metrics/cosine.h"

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

/// Returns, for each column, the number of rows in which it is active: int64 [V].
at::Tensor count_active(const at::Tensor& encoding) {
  if (!encoding.is_sparse()) return encoding.gt(0).sum(0);
  return at::bincount(encoding.indices()[1].masked_select(encoding.values().gt(0)), {}, encoding.size(1));
}

}  // namespace

at::Tensor narrow_rows(const at::Tensor& rows, std::int64_t begin, std::int64_t count) {
  if (!rows.is_sparse()) return rows.narrow(0, begin, count);
  const at::Tensor indices = rows.indices();
  const at::Tensor ends = at::searchsorted(indices[0].contiguous(), at::tensor({begin, begin + count}, at::kLong));
  const auto first = ends[0].item<std::int64_t>(), entries = ends[1].item<std::int64_t>() - first;
  at::Tensor own = indices.narrow(1, first, entries).clone();
  own[0] -= begin;
  return at::sparse_coo_tensor(own, rows.values().narrow(0, first, entries), {count, rows.size(1)}, rows.options(), /*is_coalesced=*/true);
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
        right.for_entries(j, [&](std::int64_t column, double value) { sum += value * dense[static_cast<std::size_t>(column)]; });
        out[i * right.count + j] = sum;
      }
      left.for_entries(i, [&](std::int64_t column, double) { dense[static_cast<std::size_t>(column)] = 0; });
    }
  });
  return cosines;
}

at::Tensor interpretability_ranking(const at::Tensor& activations, const at::Tensor& labels, const at::Tensor& class_token_ids) {
  TORCH_CHECK(activations.dim() == 2 && labels.dim() == 1 && labels.size(0) == activations.size(0),
              "interpretability_ranking: activations and labels must be [N, V] and [N], got ", activations.sizes(),
              " and ", labels.sizes());
  TORCH_CHECK(class_token_ids.dim() == 2, "interpretability_ranking: class_token_ids must be [C, S], got ", class_token_ids.sizes());
  const std::int64_t vocabulary = activations.size(1);
  const auto options = labels.options().device(activations.device()).dtype(at::kLong);
  const at::Tensor tokens = class_token_ids.to(options);
  const at::Tensor truth = labels.to(options);
  TORCH_CHECK(tokens.numel() == 0 || tokens.max().item<std::int64_t>() < vocabulary,
              "interpretability_ranking: class_token_ids must lie below ", vocabulary);
  TORCH_CHECK(truth.numel() == 0 || truth.max().item<std::int64_t>() < tokens.size(0),
              "interpretability_ranking: labels must lie below ", tokens.size(0));
  const at::Tensor ranks = at::empty_like(truth);
  for_tiles(activations.size(0), vocabulary, [&](std::int64_t begin, std::int64_t end) {
    const at::Tensor values = at::nan_to_num(activations.slice(0, begin, end), -INFINITY, INFINITY, -INFINITY);
    const at::Tensor label = truth.slice(0, begin, end);
    const at::Tensor own = tokens.index_select(0, label.clamp_min(0));  // [T, S]
    const at::Tensor real = own.ge(0);
    at::Tensor rank = at::full_like(label, vocabulary + 1);
    if (own.size(1) > 0) {
      const at::Tensor best = at::where(real, values.gather(1, own.clamp_min(0)), -INFINITY).amax(1, true);
      // The count of values >= `best` includes `best` itself, so the count is the rank, counted from 1.
      rank = at::where(real.any(1), values.ge(best).sum(1), rank);
    }
    ranks.slice(0, begin, end).copy_(at::where(label.lt(0), -1, rank));
  });
  return ranks;
}

void SparsityMeter::add(const at::Tensor& encoding) {
  TORCH_CHECK(encoding.dim() == 2 && (!active_.defined() || encoding.size(1) == active_.size(0)),
              "SparsityMeter: encodings must be [B, V] of one V, got ", encoding.sizes());
  const at::Tensor active = count_active(encoding);
  active_ = active_.defined() ? active_ + active : active;
  rows_ += encoding.size(0);
}

double SparsityMeter::mean_active() const {
  if (rows_ == 0) return 0;
  return static_cast<double>(active_.sum().item<std::int64_t>()) / static_cast<double>(rows_);
}

std::int64_t SparsityMeter::dead_columns() const {
  return active_.defined() ? active_.eq(0).sum().item<std::int64_t>() : 0;
}

double SparsityMeter::expected_flops() const {
  if (rows_ == 0) return 0;
  return (active_.to(at::kDouble) / static_cast<double>(rows_)).square().sum().item<double>();
}

}  // namespace tessera::metrics
