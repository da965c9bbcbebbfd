#include <algorithm>

#include <ATen/ATen.h>

#include <tessera/optim/parameter_rules.h>
#include <tessera/optim/grad_norm_groups.h>

namespace tessera {
namespace {

const char* tower_of(const std::string& name) {
  if (of_objective(name)) return "objective";
  return matches("image", name) ? "image" : "text";
}

}  // namespace

GradNormGroups grad_norm_groups(const Optimizer& optimizer) {
  GradNormGroups towers;
  for (const std::string name : {"image", "text", "objective"})
    if (std::any_of(optimizer.parameters().begin(), optimizer.parameters().end(),
                    [&](const NamedParameter& each) { return tower_of(each.name) == name; }))
      towers.names.push_back(name);
  for (const NamedParameter& each : optimizer.parameters())
    towers.of.push_back(static_cast<std::size_t>(
        std::distance(towers.names.begin(), std::find(towers.names.begin(), towers.names.end(), tower_of(each.name)))));
  return towers;
}

GradientNorms clip_gradients(const Optimizer& optimizer, const GradNormGroups& towers, std::optional<double> max_norm,
                             ClipMode mode) {
  std::vector<at::Tensor> gradients;
  std::vector<std::size_t> group_of;
  for (std::size_t i = 0; i < towers.of.size(); ++i) {
    const at::Tensor& gradient = optimizer.parameters()[i].tensor.grad();
    if (!gradient.defined() || optimizer.frozen(i)) continue;
    gradients.push_back(gradient);
    group_of.push_back(towers.of[i]);
  }
  return clip_grad_norm(gradients, max_norm, group_of, towers.names.size(), mode);
}

}  // namespace tessera
