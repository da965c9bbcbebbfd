#include "src/evaluation/metrics/cosine.h"

#include <string_view>
#include <unordered_map>

namespace tessera::metrics {
namespace {

/// Returns, for each row of `rows` (double), the index of the first row with the same bits, int64 [N]. If all rows differ,
/// returns an undefined tensor.
at::Tensor first_of_equal(const at::Tensor& rows) {
  const at::Tensor own = rows.to(at::kCPU).contiguous();
  const std::size_t bytes = static_cast<std::size_t>(own.size(1)) * sizeof(double);
  const auto* data = reinterpret_cast<const char*>(own.const_data_ptr<double>());
  std::unordered_map<std::string_view, std::int64_t> seen;
  std::vector<std::int64_t> first;
  for (std::size_t i = 0; i < static_cast<std::size_t>(own.size(0)); ++i)
    first.push_back(seen.emplace(std::string_view(data + i * bytes, bytes), i).first->second);
  return std::ssize(seen) == own.size(0) ? at::Tensor() : at::tensor(first, at::kLong).to(rows.device());
}

}  // namespace

at::Tensor unit_rows(const at::Tensor& rows) {
  TORCH_CHECK(rows.dim() >= 1, "unit_rows: expected rows of features, got a scalar");
  const at::Tensor exact = rows.to(at::kDouble);
  return exact / exact.norm(2, -1, true).clamp_min(1e-12);
}

CosinesWith::CosinesWith(const at::Tensor& rows)
    : rows_(unit_rows(rows).add_(0.0)),  // turns -0 into 0, which is equal but has different bits
      first_(first_of_equal(rows_)) {}

at::Tensor CosinesWith::operator()(const at::Tensor& queries) const {
  const at::Tensor cosines = unit_rows(queries).matmul(rows_.t());
  return first_.defined() ? cosines.index_select(-1, first_) : cosines;
}

void for_tiles(std::int64_t rows, std::int64_t columns, const std::function<void(std::int64_t, std::int64_t)>& body) {
  constexpr std::int64_t kTile = 1 << 22;
  const std::int64_t height = std::max<std::int64_t>(1, kTile / std::max<std::int64_t>(1, columns));
  for (std::int64_t begin = 0; begin < rows; begin += height) body(begin, std::min(rows, begin + height));
}

at::Tensor best_first(const at::Tensor& values, std::int64_t k) {
  k = std::min(k, values.size(-1));
  if (k > 0 && 8 * k < values.size(-1)) {
    const auto [best, place] = at::topk(values, k, -1);
    // If exactly k values of each row are at least as large as the row's k-th best value, no tie decided which values topk returned. Then
    // it is enough to sort these k values.
    if (values.ge(best.narrow(-1, k - 1, 1)).sum(-1).eq(k).all().item<bool>()) {
      const at::Tensor index = std::get<0>(place.sort(-1));
      return index.gather(-1, best_first(values.gather(-1, index), k));
    }
  }
  const at::Tensor order = std::get<1>(at::sort(values, /*stable=*/true, /*dim=*/-1, /*descending=*/true));
  return order.narrow(-1, 0, k).contiguous();
}

at::Tensor best_right_rank(const at::Tensor& scores, const at::Tensor& query_id, const at::Tensor& candidate_id) {
  const std::int64_t count = candidate_id.size(0);
  const at::Tensor index = at::arange(count, candidate_id.options()).unsqueeze(0);
  const at::Tensor known = at::nan_to_num(scores, -INFINITY), id = query_id.unsqueeze(1);
  const at::Tensor right = at::logical_and(candidate_id.unsqueeze(0).eq(id), id.ge(0));
  const at::Tensor best = at::where(right, known, -INFINITY).amax(1, true);
  const at::Tensor first = at::where(at::logical_and(right, known.eq(best)), index, count).amin(1, true);
  const at::Tensor before = at::logical_or(known.gt(best), at::logical_and(known.eq(best), index.lt(first))).sum(1);
  // If the scores of a query are NaN, its correct candidate ranks last, not first.
  const at::Tensor place = at::where(best.squeeze(1).eq(-INFINITY), count, before);
  return at::where(right.any(1), place, -1);
}

std::vector<double> recall_at(const at::Tensor& ranks, const std::vector<std::int64_t>& topk) {
  const at::Tensor counted = ranks.ge(0);
  const auto total = counted.sum().item<std::int64_t>();
  std::vector<double> shares;
  for (const std::int64_t k : topk) {
    const auto hits = at::logical_and(counted, ranks.lt(k)).sum().item<std::int64_t>();
    shares.push_back(total > 0 ? static_cast<double>(hits) / static_cast<double>(total) : 0.0);
  }
  return shares;
}

double mean_of_present(const at::Tensor& values, std::int64_t without) {
  at::Tensor counted = values.ne(-1);
  if (without >= 0 && without < values.size(0)) counted[without] = false;
  const at::Tensor kept = values.masked_select(counted);
  return kept.numel() > 0 ? kept.mean().item<double>() : 0.0;
}

double share_equal(const at::Tensor& a, const at::Tensor& b) {
  return a.numel() > 0 ? a.eq(b).to(at::kDouble).mean().item<double>() : 0.0;
}

}  // namespace tessera::metrics
