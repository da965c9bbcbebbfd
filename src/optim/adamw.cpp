#include <cmath>

#include <ATen/ATen.h>

#include "src/optim/adamw.h"

namespace tessera {

AdamW::AdamW(std::vector<NamedParameter> parameters, const AdamWSettings& settings)
    : Optimizer(std::move(parameters), settings.decay, settings.lr), settings_(settings) {}

void AdamW::update(std::vector<Group>& groups) {
  const auto [beta1, beta2] = settings_.betas;
  for (Group& group : groups) {
    auto &exp_avg = group.moments[0], &exp_avg_sq = group.moments[1];
    const at::Tensor count = group.count.to(at::kFloat);
    if (!settings_.update_clipping) {
      const std::vector<at::Tensor> counts(group.parameters.size(), count);
      at::_fused_adamw_(group.parameters, group.gradients, exp_avg, exp_avg_sq, /*max_exp_avg_sqs=*/{}, counts,
                        group.learning_rate, beta1, beta2, group.weight_decay, settings_.eps, /*amsgrad=*/false,
                        /*maximize=*/false, /*grad_scale=*/std::nullopt, group.found_inf);
      continue;
    }
    const std::vector<at::Tensor> rates = clipped_rates(group);
    for (std::size_t i = 0; i < rates.size(); ++i)
      at::_fused_adamw_(group.parameters[i], group.gradients[i], exp_avg[i], exp_avg_sq[i], /*max_exp_avg_sqs=*/{},
                        count, rates[i], beta1, beta2, group.weight_decay, settings_.eps, /*amsgrad=*/false,
                        /*maximize=*/false, /*grad_scale=*/std::nullopt, group.found_inf);
  }
}

std::vector<at::Tensor> AdamW::clipped_rates(const Group& group) const {
  const double beta2 = settings_.betas[1];
  std::vector<at::Tensor> second = at::_foreach_mul(group.moments[1], beta2);
  at::_foreach_addcmul_(second, group.gradients, group.gradients, 1 - beta2);
  at::_foreach_div_(second, (1 - at::pow(beta2, group.count)).to(second[0].scalar_type()));
  at::_foreach_clamp_min_(second, settings_.eps * settings_.eps);
  std::vector<at::Tensor> rates;
  for (std::size_t i = 0; i < second.size(); ++i) {
    const at::Tensor rms = (group.gradients[i].square() / second[i]).mean().sqrt();
    rates.push_back((group.learning_rate / at::clamp_min(rms, 1.0)).to(at::kFloat));
  }
  return rates;
}

}  // namespace tessera
