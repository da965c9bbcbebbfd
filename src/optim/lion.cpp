#include <ATen/ATen.h>

#include "src/optim/lion.h"

namespace tessera {

Lion::Lion(std::vector<NamedParameter> parameters, const LionSettings& settings)
    : Optimizer(std::move(parameters), settings.decay, settings.lr, {"exp_avg"}), settings_(settings) {}

void Lion::update(std::vector<Group>& groups) {
  for (Group& group : groups) {
    group.drop_skipped_gradients();
    const std::vector<at::Tensor>& moments = group.moments[0];
    const at::TensorOptions options = moments[0].options();
    std::vector<at::Tensor> direction = at::_foreach_lerp(moments, group.gradients, 1 - settings_.betas[0]);
    at::_foreach_sign_(direction);
    at::_foreach_mul_(direction, (-group.learning_rate * group.made()).to(options));
    group.decay_weights();
    at::_foreach_add_(group.parameters, direction);
    const at::Tensor share = ((1 - settings_.betas[1]) * group.made()).to(options);
    at::_foreach_lerp_(moments, group.gradients, std::vector<at::Tensor>(moments.size(), share));
  }
}

}  // namespace tessera
