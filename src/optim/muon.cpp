#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>

#include "src/optim/muon.h"
#include <tessera/optim/parameter_rules.h>

namespace tessera {
namespace {

bool is_muon_matrix(const NamedParameter& parameter, const MuonSettings& settings) {
  return parameter.tensor.dim() == 2 && std::none_of(settings.adamw_for.begin(), settings.adamw_for.end(),
                                                     [&](const std::string& each) { return matches(each, parameter.name); });
}

// The schedule scales one rate, so AdamW's rate is a multiple of it.
std::vector<NamedParameter> with_adamw_rate(std::vector<NamedParameter> parameters, const MuonSettings& settings) {
  if (settings.adamw_lr)
    for (NamedParameter& each : parameters)
      if (!is_muon_matrix(each, settings)) each.lr_scale *= *settings.adamw_lr / settings.lr;
  return parameters;
}

double rate_factor(const at::Tensor& matrix, const std::string& rule) {
  const auto rows = static_cast<double>(matrix.size(0)), columns = static_cast<double>(matrix.size(1));
  return rule == "original" ? std::sqrt(std::max(1.0, rows / columns)) : 0.2 * std::sqrt(std::max(rows, columns));
}

}  // namespace

std::optional<config::Problem> validate(const MuonSettings& settings) {
  if (!settings.adamw_lr || settings.lr > 0) return std::nullopt;
  return config::Problem{"adamw_lr", "needs lr above 0"};
}

at::Tensor orthogonalized(const at::Tensor& matrix, std::int64_t steps, at::ScalarType type) {
  constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315, kEpsilon = 1e-7;
  const bool tall = matrix.size(0) > matrix.size(1);
  at::Tensor x = tall ? matrix.to(type).t() : matrix.to(type);
  x = x / x.norm().clamp_min(kEpsilon);  // then no singular value is above 1
  for (std::int64_t i = 0; i < steps; ++i) {
    const at::Tensor gram = x.mm(x.t());
    x = at::addmm(x, at::addmm(gram, gram, gram, kB, kC), x, kA);
  }
  return tall ? x.t() : x;
}

Muon::Muon(std::vector<NamedParameter> parameters, const MuonSettings& settings)
    : AdamW(with_adamw_rate(std::move(parameters), settings),
            {.lr = settings.lr, .betas = settings.betas, .eps = settings.eps, .decay = settings.decay},
            [&](std::size_t moment, const NamedParameter& each) { return moment == 0 || !is_muon_matrix(each, settings); }),
      settings_(settings) {
  use_kernel(nullptr);  // so that updates are not recorded, and no copies of weights are expected of them
}

bool Muon::divisible(std::size_t index) const {
  return !is_muon_matrix(parameters()[index], settings_);
}

void Muon::update(std::vector<Group>& groups) {
  std::vector<Group> others;
  for (Group& group : groups) {
    Group rest = group.only([&](std::size_t index) { return !is_muon_matrix(parameters()[index], settings_); });
    if (!rest.indices.empty()) others.push_back(std::move(rest));
    Group matrices = group.only([&](std::size_t index) { return is_muon_matrix(parameters()[index], settings_); });
    matrices.drop_skipped_gradients();
    if (!matrices.indices.empty()) matrices.decay_weights();
    for (std::size_t i = 0; i < matrices.indices.size(); ++i) update_matrix(matrices, i);
  }
  AdamW::update(others);
}

void Muon::update_matrix(const Group& group, std::size_t position) const {
  const at::Tensor &parameter = group.parameters[position], &gradient = group.gradients[position], &average = group.moments[0][position];
  const at::Tensor share = (1 - settings_.momentum) * group.made();
  average.lerp_(gradient, share.to(average.options()));
  const at::Tensor direction = settings_.nesterov ? gradient.lerp(average, settings_.momentum) : average;
  const at::Tensor step = orthogonalized(direction, settings_.ns_steps, settings_.ns_type == "float32" ? at::kFloat : at::kBFloat16);
  const double rate = group.learning_rate * rate_factor(parameter, settings_.adjust_lr_fn);
  parameter.add_(step * group.made().to(step.options()), -rate);
}

}  // namespace tessera
