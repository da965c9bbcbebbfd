#include <ATen/ATen.h>

#include "src/objectives/common/reduction.h"
#include <tessera/objectives/caption_loss.h>
#include <tessera/ops/linear_cross_entropy.h>

namespace tessera {

at::Tensor caption_loss_sum(const at::Tensor& hidden, const at::Tensor& table, const at::Tensor& ids,
                            const at::Tensor& mask) {
  constexpr std::int64_t kIgnored = -100;
  const at::Tensor targets = ids.slice(1, 1).masked_fill(mask.slice(1, 1).logical_not(), kIgnored);
  return linear_cross_entropy(hidden.flatten(0, 1), table, targets.flatten(), kIgnored, {}, at::Reduction::Sum);
}

at::Tensor reduced_caption_loss(const at::Tensor& sum, const at::Tensor& mask, const std::string& reduction,
                                const ProcessGroup& group) {
  if (reduction == "mean") return mean_over_tokens(sum, mask.slice(1, 1), group);
  return sum * group.size();
}

}  // namespace tessera
