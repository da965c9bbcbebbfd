#include <ATen/ATen.h>

#include "src/evaluation/metrics/sparsity_meter.h"

namespace tessera::metrics {
namespace {

/// Returns, for each column, the number of rows in which it is active: int64 [V].
at::Tensor count_active(const at::Tensor& encoding) {
  if (!encoding.is_sparse()) return encoding.gt(0).sum(0);
  return at::bincount(encoding.indices()[1].masked_select(encoding.values().gt(0)), {}, encoding.size(1));
}

}  // namespace

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
