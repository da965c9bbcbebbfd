#include "src/objectives/flops_regularizer.h"

#include <ATen/ATen.h>

#include <tessera/distributed/collectives.h>
#include <tessera/ops/flops_regularizer.h>
#include <tessera/ops/numeric.h>

namespace tessera {

at::Tensor flops_regularizer(const at::Tensor& encoding, const ProcessGroup& group) {
  if (group.alone()) return flops_regularizer(encoding);
  const NoAutocast no_autocast;
  const at::Tensor own = flops_column_sums(encoding);  // [V]
  const at::Tensor rows = at::full({1}, encoding.size(0), own.options());
  const at::Tensor all = sum_over_ranks(at::cat({own, rows}), group);
  const at::Tensor mean = all.slice(0, 0, -1) / all[-1].detach();
  return mean.square().sum();
}

}  // namespace tessera
