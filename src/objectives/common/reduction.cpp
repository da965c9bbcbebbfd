#include "src/objectives/common/reduction.h"

#include <ATen/ATen.h>

namespace tessera {

at::Tensor mean_over_sequences(const at::Tensor& values, const at::Tensor& mask, const PairRelation& relation,
                               const ProcessGroup& group) {
  return relation.mean_of((values.sum(1) / mask.sum(1).clamp_min(1)).sum(), group);
}

at::Tensor mean_over_tokens(const at::Tensor& values, const at::Tensor& mask, const ProcessGroup& group) {
  at::Tensor count = mask.sum();
  group.all_reduce(count);
  return values.sum() * group.size() / count.clamp_min(1);
}

}  // namespace tessera
