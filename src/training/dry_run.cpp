#include <chrono>
#include <cmath>
#include <sstream>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/bench/step_meter.h>
#include <tessera/training/clip_grad_norm.h>
#include <tessera/training/dry_run.h>
#include <tessera/training/parts.h>

namespace tessera {
namespace {

std::int64_t bytes_of(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<std::int64_t>(tensor.nbytes()) : 0;
}

void count_parameters(const Parts& parts, StepCost& cost) {
  const auto towers = parts.model->named_state();
  for (const NamedParameter& parameter : parts.optimizer->parameters()) {
    std::int64_t& count = !towers.contains(parameter.name)        ? cost.objective_parameters
                          : parameter.name.starts_with("visual.") ? cost.image_parameters
                                                                  : cost.text_parameters;
    count += parameter.tensor.numel();
  }
  for (const auto& [name, tensor] : weights_of(*parts.model, *parts.objective)) cost.weights += bytes_of(tensor);
  for (const auto& [name, tensor] : parts.optimizer->state()) cost.optimizer += bytes_of(tensor);
  if (parts.average)
    for (const auto& [name, tensor] : parts.average->averages()) cost.weights += bytes_of(tensor);
}

}  // namespace

StepCost measure_step(const Config& config) {
  Parts parts = build_parts(config);
  take_weights(*parts.model, *parts.objective, config.start);
  StepCost cost;
  count_parameters(parts, cost);
  const Batch batch = parts.loader->next().to(parts.device);
  cost.batch_size = batch.size();
  StepContext context;
  context.generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(config.seed));

  const auto begin = std::chrono::steady_clock::now();
  const FlopCounter flops;
  const MemoryMeter memory;
  Losses losses = forward_loss(parts, batch, config.training.precision, context);
  cost.forward_flops = flops.flops() / static_cast<double>(cost.batch_size);
  cost.activations = memory.held();
  losses.total.backward();
  cost.total_flops = flops.flops() / static_cast<double>(cost.batch_size);
  cost.loss = losses.total.item<double>();
  cost.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();

  std::vector<at::Tensor> gradients;
  for (const NamedParameter& parameter : parts.optimizer->parameters()) {
    const at::Tensor gradient = parameter.tensor.grad();
    cost.gradients += bytes_of(gradient);
    if (gradient.defined()) gradients.push_back(gradient);
  }
  clip_grad_norm(gradients, config.training.clip_norm);
  parts.optimizer->step(parts.optimizer->peak_learning_rate());
  cost.peak = cost.weights + cost.optimizer + memory.peak();
  return cost;
}

std::string to_text(const StepCost& cost) {
  std::ostringstream out;
  const std::int64_t all = cost.image_parameters + cost.text_parameters + cost.objective_parameters;
  out << "parameters        " << with_thousands(all) << ": image tower " << with_thousands(cost.image_parameters)
      << ", text tower " << with_thousands(cost.text_parameters) << ", objective "
      << with_thousands(cost.objective_parameters) << "\n"
      << "FLOPs per sample  " << format_flops(cost.total_flops) << " forward and backward, "
      << format_flops(cost.forward_flops)
      << " forward (matrix products, convolutions and attention; 2 per multiply-add; loss included)\n"
      << "memory            weights " << format_bytes(static_cast<double>(cost.weights)) << ", gradients "
      << format_bytes(static_cast<double>(cost.gradients)) << ", optimizer "
      << format_bytes(static_cast<double>(cost.optimizer)) << ", activations of a batch of " << cost.batch_size << " "
      << format_bytes(static_cast<double>(cost.activations)) << ", peak of the step "
      << format_bytes(static_cast<double>(cost.peak)) << " (tensors; measured)\n"
      << "one step          " << format_duration(cost.seconds) << ", loss " << cost.loss
      << (std::isfinite(cost.loss) ? "" : " (not finite!)") << "\n";
  return out.str();
}

}  // namespace tessera
