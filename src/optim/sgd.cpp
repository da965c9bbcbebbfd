#include <ATen/ATen.h>

#include "src/optim/sgd.h"

namespace tessera {

std::optional<config::Problem> validate(const SgdSettings& settings) {
  if (!settings.nesterov || settings.momentum > 0) return std::nullopt;
  return config::Problem{"nesterov", "needs momentum above 0"};
}

Sgd::Sgd(std::vector<NamedParameter> parameters, const SgdSettings& settings)
    : Optimizer(std::move(parameters), settings.decay, settings.lr,
                settings.momentum > 0 ? std::vector<std::string>{"momentum_buffer"} : std::vector<std::string>{}),
      settings_(settings) {}

void Sgd::update(std::vector<Group>& groups) {
  for (Group& group : groups) {
    // Buffers start at zero, so the first step needs no special case.
    const at::TensorList buffers = group.moments.empty() ? at::TensorList() : at::TensorList(group.moments[0]);
    at::_fused_sgd_(group.parameters, group.gradients, buffers, group.weight_decay, settings_.momentum,
                    group.learning_rate, /*dampening=*/0.0, settings_.nesterov, /*maximize=*/false,
                    /*is_first_step=*/false, /*grad_scale=*/std::nullopt, group.found_inf);
  }
}

}  // namespace tessera
