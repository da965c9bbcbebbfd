#include <ATen/ATen.h>

#include <tessera/evaluation/metrics/sparsity_statistics.h>

namespace tessera::metrics {

SparsityStatistics sparsity_statistics(const at::Tensor& encoding) {
  TORCH_CHECK(encoding.dim() == 2 && encoding.numel() > 0 && encoding.is_floating_point(),
              "sparsity_statistics: encoding must be floating [N, V] with N and V at least 1, got ",
              encoding.scalar_type(), " ", encoding.sizes());
  const at::Tensor active = encoding > 0;
  const at::Tensor share = active.sum(0).to(at::kDouble) / static_cast<double>(encoding.size(0));  // [V]
  SparsityStatistics out;
  out.active_per_row = active.sum(1);
  out.mean_active = share.sum().item<double>();
  out.density = out.mean_active / static_cast<double>(encoding.size(1));
  out.dead_columns = share.eq(0).sum().item<std::int64_t>();
  out.expected_flops = share.square().sum().item<double>();
  return out;
}

}  // namespace tessera::metrics
