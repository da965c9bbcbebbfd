#include <set>
#include <tuple>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <tessera/base/error.h>
#include <tessera/training/optimizer.h>

namespace tessera {

double weight_decay_of(const NamedParameter& parameter, const DecaySettings& settings) {
  if (parameter.tensor.dim() < 2) return 0.0;
  for (const std::string& part : settings.no_decay)
    if (parameter.name.find(part) != std::string::npos) return 0.0;
  return settings.weight_decay;
}

Optimizer::Optimizer(std::vector<NamedParameter> parameters, const DecaySettings& decay, double peak,
                     std::vector<std::string> moments)
    : parameters_(std::move(parameters)),
      moment_names_(std::move(moments)),
      moments_(moment_names_.size()),
      peak_(peak) {
  std::set<std::string> names;
  for (const NamedParameter& parameter : parameters_) {
    if (!names.insert(parameter.name).second) user_error("optimizer: two parameters are named ", parameter.name);
    decay_.push_back(weight_decay_of(parameter, decay));
    // Moments and parameter must have one memory layout: the fused operators walk over them side by side.
    for (std::vector<at::Tensor>& moment : moments_) moment.push_back(at::zeros_like(parameter.tensor));
  }
}

std::vector<Optimizer::Group> Optimizer::groups(double learning_rate) const {
  std::map<std::tuple<double, double, at::ScalarType, c10::DeviceType, int>, Group> by_key;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& parameter = parameters_[i].tensor;
    at::Tensor gradient = parameter.grad();
    if (!gradient.defined()) continue;
    if (gradient.strides() != parameter.strides()) gradient = at::empty_like(parameter).copy_(gradient);
    Group& group = by_key[{parameters_[i].lr_scale, decay_[i], parameter.scalar_type(), parameter.device().type(),
                           parameter.device().index()}];
    group.learning_rate = learning_rate * parameters_[i].lr_scale;
    group.weight_decay = decay_[i];
    group.indices.push_back(i);
    group.parameters.push_back(parameter);
    group.gradients.push_back(gradient);
    group.moments.resize(moments_.size());
    for (std::size_t k = 0; k < moments_.size(); ++k) group.moments[k].push_back(moments_[k][i]);
  }
  std::vector<Group> out;
  for (auto& [key, group] : by_key) out.push_back(std::move(group));
  return out;
}

void Optimizer::step(double learning_rate, const at::Tensor& halted) {
  const c10::NoGradGuard no_grad;
  std::vector<Group> with_gradient = groups(learning_rate);
  update(with_gradient, ++steps_, halted.defined() ? std::optional(halted) : std::nullopt);
}

void Optimizer::zero_grad() {
  for (NamedParameter& parameter : parameters_) parameter.tensor.mutable_grad().reset();
}

std::map<std::string, at::Tensor> Optimizer::state() const {
  std::map<std::string, at::Tensor> out{{"step", at::scalar_tensor(steps_, at::kLong)}};
  for (std::size_t k = 0; k < moments_.size(); ++k)
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      out[moment_names_[k] + "." + parameters_[i].name] = moments_[k][i];
  return out;
}

void Optimizer::load_state(const std::map<std::string, at::Tensor>& state, const std::string& origin) {
  const c10::NoGradGuard no_grad;
  std::map<std::string, at::Tensor> mine = this->state();
  for (const auto& [name, tensor] : mine) {
    const auto found = state.find(name);
    if (found == state.end()) user_error(origin, ": the optimizer's state lacks ", name);
    if (found->second.sizes() != tensor.sizes())
      user_error(origin, ": the optimizer's ", name, " has shape ", found->second.sizes(), ", expected ",
                 tensor.sizes());
  }
  for (const auto& [name, tensor] : state)
    if (!mine.contains(name))
      user_error(origin, ": the optimizer's state holds ", name, ", which no parameter here has");
  for (auto& [name, tensor] : mine) tensor.copy_(state.at(name));
  steps_ = mine.at("step").item<std::int64_t>();
}

}  // namespace tessera
