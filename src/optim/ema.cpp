#include <algorithm>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <tessera/base/error.h>
#include <tessera/optim/ema.h>

namespace tessera {

namespace {

std::map<std::string, at::Tensor> copies(std::map<std::string, at::Tensor> tensors) {
  for (auto& [name, tensor] : tensors) tensor = tensor.detach().clone();
  return tensors;
}

std::map<std::string, at::Tensor> detached(std::map<std::string, at::Tensor> tensors) {
  for (auto& [name, tensor] : tensors) tensor = tensor.detach();
  return tensors;
}

}  // namespace

Ema::Ema(std::map<std::string, at::Tensor> weights, const EmaSettings& settings)
    : weights_(detached(std::move(weights))), averages_(copies(weights_)), settings_(settings) {}

Ema::Ema(std::map<std::string, at::Tensor> weights, std::map<std::string, at::Tensor> averages,
         const EmaSettings& settings)
    : weights_(detached(std::move(weights))), averages_(detached(std::move(averages))), settings_(settings) {
  restart();
}

void Ema::restart() {
  load(weights_, "the weights");
}

void Ema::update(std::int64_t step, const at::Tensor& found_inf) {
  const auto t = static_cast<double>(step);
  update_with(settings_.warmup ? std::min(settings_.decay, (1 + t) / (10 + t)) : settings_.decay, found_inf);
}

void Ema::update_with(double decay, const at::Tensor& found_inf) {
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> weights, averages;
  for (auto& [name, average] : averages_) {
    const at::Tensor& weight = weights_.at(name);
    if (!weight.is_floating_point()) {
      average.copy_(weight);
      continue;
    }
    weights.push_back(weight);
    averages.push_back(average);
  }
  if (averages.empty()) return;
  if (!found_inf.defined()) return at::_foreach_lerp_(averages, weights, 1 - decay);
  const at::Tensor share = (found_inf == 0).to(at::kDouble) * (1 - decay);
  for (std::size_t i = 0; i < averages.size(); ++i) averages[i].lerp_(weights[i], share.to(averages[i].options()));
}

void Ema::load(const std::map<std::string, at::Tensor>& averages, const std::string& origin) {
  const c10::NoGradGuard no_grad;
  for (const auto& [name, average] : averages_) {
    const auto found = averages.find(name);
    if (found == averages.end()) user_error(origin, ": lacks ", name);
    if (found->second.sizes() != average.sizes())
      user_error(origin, ": ", name, " has shape ", found->second.sizes(), ", expected ", average.sizes());
  }
  for (auto& [name, average] : averages_) average.copy_(averages.at(name));
}

void Ema::swap() {
  const c10::NoGradGuard no_grad;
  for (auto& [name, average] : averages_) {
    const at::Tensor weight = weights_.at(name).clone();
    weights_.at(name).copy_(average);
    average.copy_(weight);
  }
}

}  // namespace tessera
