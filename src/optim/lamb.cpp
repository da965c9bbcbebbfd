#include <ATen/ATen.h>

#include "src/optim/clip_grad_norm.h"
#include "src/optim/lamb.h"

namespace tessera {

Lamb::Lamb(std::vector<NamedParameter> parameters, const LambSettings& settings)
    : Optimizer(std::move(parameters), settings.decay, settings.lr), settings_(settings) {}

// Returns the norms of the parameters of which `values` are this rank's elements, [parameters of the group].
at::Tensor Lamb::whole_norms(const Group& group, const std::vector<at::Tensor>& values) const {
  std::vector<at::Tensor> norms = at::_foreach_norm(values);
  if (!is_sharded()) return at::stack(norms);
  at::_foreach_mul_(norms, norms);
  return at::stack(whole_sums(group, norms)).sqrt();
}

void Lamb::measure(const std::vector<Group>& groups) {
  std::vector<at::Tensor> all;
  for (const Group& group : groups) all.insert(all.end(), group.gradients.begin(), group.gradients.end());
  grad_norm_ = norms_over_ranks(global_norm(all));
  trust_ratios_.assign(parameters().size(), at::Tensor());
}

void Lamb::update(std::vector<Group>& groups) {
  for (Group& group : groups) {
    if (group.indices.empty()) {  // other ranks own all of it, and wait for this one at both norms
      for (int i = 0; adapts(group) && i < 2; ++i) whole_sums(group, {});
      continue;
    }
    if (settings_.max_grad_norm) {
      const at::Tensor divisor = at::clamp_min(grad_norm_ / *settings_.max_grad_norm, 1.0);
      group.gradients = at::_foreach_div(group.gradients, divisor.to(group.gradients[0].options()));
    }
    group.drop_skipped_gradients();
    update_group(group);
  }
}

// If found_inf is 1, the update has no effect, and the host does not have to wait for the device: the gradients are
// zero, the moments keep their values because their decay factor is set to 1, and the weights keep theirs because the
// update is multiplied by zero.
void Lamb::update_group(Group& group) {
  const std::optional<at::Tensor>& found_inf = group.found_inf;
  auto &exp_avg = group.moments[0], &exp_avg_sq = group.moments[1];
  const auto [beta1, beta2] = settings_.betas;
  const auto correction = [&](double beta) -> at::Tensor {
    return settings_.bias_correction ? 1 - at::pow(beta, group.count) : at::ones_like(group.count);
  };
  const at::ScalarType type = exp_avg[0].scalar_type();

  const auto decay = [&](const std::vector<at::Tensor>& moment, double beta) {
    if (!found_inf) return at::_foreach_mul_(moment, beta);
    at::_foreach_mul_(moment, at::where(*found_inf != 0, 1.0, at::full_like(*found_inf, beta)).to(moment[0].options()));
  };
  decay(exp_avg, beta1);
  at::_foreach_add_(exp_avg, group.gradients, settings_.grad_averaging ? 1 - beta1 : 1.0);
  decay(exp_avg_sq, beta2);
  at::_foreach_addcmul_(exp_avg_sq, group.gradients, group.gradients, 1 - beta2);

  std::vector<at::Tensor> denominator = at::_foreach_sqrt(exp_avg_sq);
  at::_foreach_div_(denominator, correction(beta2).sqrt().to(type));
  at::_foreach_add_(denominator, settings_.eps);
  std::vector<at::Tensor> update = at::_foreach_div(exp_avg, correction(beta1).to(type));
  at::_foreach_div_(update, denominator);
  if (group.weight_decay != 0) at::_foreach_add_(update, group.parameters, group.weight_decay);

  if (adapts(group)) {
    const at::Tensor weight_norm = whole_norms(group, group.parameters), update_norm = whole_norms(group, update);
    const at::Tensor both = at::logical_and(weight_norm > 0, update_norm > 0);
    at::Tensor ratio = at::where(both, weight_norm / update_norm, at::ones_like(weight_norm));
    if (settings_.trust_clip) ratio = at::clamp_max(ratio, 1.0);
    const std::vector<at::Tensor> ratios = ratio.unbind();
    at::_foreach_mul_(update, ratios);
    for (std::size_t i = 0; i < ratios.size(); ++i) trust_ratios_[group.indices[i]] = ratios[i];
  } else {
    for (const std::size_t index : group.indices) trust_ratios_[index] = at::ones({}, group.parameters[0].options());
  }
  if (found_inf) at::_foreach_mul_(update, (*found_inf == 0).to(update[0].options()));
  at::_foreach_add_(group.parameters, update, -group.learning_rate);
}

}  // namespace tessera
