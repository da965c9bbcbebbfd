#include <algorithm>

#include <ATen/ATen.h>

#include "src/optim/grad_norm_groups.h"
#include <tessera/optim/parameter_rules.h>

namespace tessera {
namespace {

const char* tower_of(const std::string& name) {
  if (of_objective(name)) return "objective";
  return matches("image", name) ? "image" : "text";
}

}  // namespace

GradNormGroups grad_norm_groups(const Optimizer& optimizer) {
  GradNormGroups groups;
  for (const std::string name : {"image", "text", "objective"})
    if (std::any_of(optimizer.parameters().begin(), optimizer.parameters().end(),
                    [&](const NamedParameter& each) { return tower_of(each.name) == name; }))
      groups.names.push_back(name);
  for (const NamedParameter& each : optimizer.parameters())
    groups.of.push_back(static_cast<std::size_t>(
        std::distance(groups.names.begin(), std::find(groups.names.begin(), groups.names.end(), tower_of(each.name)))));
  return groups;
}

GradientNorms clip_gradients(const Optimizer& optimizer, const GradNormGroups& groups, std::optional<double> max_norm,
                             ClipMode mode) {
  std::vector<at::Tensor> gradients;
  std::vector<std::size_t> group_of;
  for (std::size_t i = 0; i < groups.of.size(); ++i) {
    const at::Tensor& gradient = optimizer.gradient(i);
    if (!gradient.defined() || optimizer.frozen(i)) continue;
    gradients.push_back(gradient);
    group_of.push_back(groups.of[i]);
  }
  const bool later = max_norm && mode == ClipMode::global && optimizer.applies_factor() && !gradients.empty();
  const auto over_ranks = [&](const at::Tensor& own) { return optimizer.norms_over_ranks(own); };
  GradientNorms norms = clip_grad_norm(gradients, later ? std::nullopt : max_norm, group_of, groups.names.size(), mode, over_ranks);
  if (later) norms.factor = clip_factor(norms.global, *max_norm);
  return norms;
}

}  // namespace tessera
