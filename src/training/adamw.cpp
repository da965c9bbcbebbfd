#include <ATen/ATen.h>

#include <tessera/training/adamw.h>

namespace tessera {

AdamW::AdamW(std::vector<NamedParameter> parameters, const AdamWSettings& settings)
    : Optimizer(std::move(parameters), settings.decay, settings.lr), settings_(settings) {}

void AdamW::update(std::vector<Group>& groups, std::int64_t step, double learning_rate) {
  for (Group& group : groups) {
    const at::Tensor count =
        at::scalar_tensor(step, at::TensorOptions(at::kFloat).device(group.parameters[0].device()));
    const std::vector<at::Tensor> counts(group.parameters.size(), count);
    at::_fused_adamw_(group.parameters, group.gradients, group.exp_avg, group.exp_avg_sq, /*max_exp_avg_sqs=*/{},
                      counts, learning_rate, settings_.betas[0], settings_.betas[1], group.weight_decay, settings_.eps,
                      /*amsgrad=*/false, /*maximize=*/false);
  }
}

}  // namespace tessera
