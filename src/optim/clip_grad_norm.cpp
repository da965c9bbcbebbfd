#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include "src/optim/clip_grad_norm.h"

namespace tessera {
namespace {

std::vector<at::Tensor> compute_norms(const std::vector<at::Tensor>& tensors) {
  if (tensors.empty()) return {};
  std::vector<at::Tensor> norms = at::_foreach_norm(tensors);
  for (at::Tensor& norm : norms) norm = norm.to(norms[0].device(), at::kFloat, /*non_blocking=*/true);
  return norms;
}

at::Tensor joint_norm(const std::vector<at::Tensor>& norms) {
  return norms.empty() ? at::zeros({}) : at::linalg_vector_norm(at::stack(norms));
}

}  // namespace

at::Tensor global_norm(const std::vector<at::Tensor>& tensors) {
  return joint_norm(compute_norms(tensors));
}

at::Tensor clip_factor(const at::Tensor& norm, double max_norm) {
  return at::clamp_max(max_norm / (norm + 1e-6), 1.0);
}

at::Tensor clip_grad_norm(const std::vector<at::Tensor>& gradients, std::optional<double> max_norm) {
  return clip_grad_norm(gradients, max_norm, std::vector<std::size_t>(gradients.size()), 0).global;
}

GradientNorms clip_grad_norm(const std::vector<at::Tensor>& gradients, std::optional<double> max_norm,
                             const std::vector<std::size_t>& group_of, std::size_t groups, ClipMode mode,
                             const std::function<at::Tensor(const at::Tensor&)>& over_ranks) {
  TORCH_CHECK(group_of.size() == gradients.size(), "clip_grad_norm: ", gradients.size(), " gradients, groups of ",
              group_of.size());
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> norms = compute_norms(gradients);
  if (over_ranks && !norms.empty()) norms = over_ranks(at::stack(norms)).unbind();
  GradientNorms out{joint_norm(norms), {}, {}};
  for (std::size_t group = 0; group < groups; ++group) {
    std::vector<at::Tensor> own;
    for (std::size_t i = 0; i < norms.size(); ++i)
      if (group_of[i] == group) own.push_back(norms[i]);
    out.groups.push_back(joint_norm(own).to(out.global.device()));
  }
  if (!max_norm || gradients.empty()) return out;
  if (mode == ClipMode::global)
    at::_foreach_mul_(gradients, clip_factor(out.global, *max_norm));
  else
    at::_foreach_mul_(gradients, clip_factor(at::stack(norms), *max_norm).unbind());
  return out;
}

}  // namespace tessera
