#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <tessera/training/clip_grad_norm.h>

namespace tessera {

at::Tensor global_norm(const std::vector<at::Tensor>& tensors) {
  if (tensors.empty()) return at::zeros({});
  std::vector<at::Tensor> norms = at::_foreach_norm(tensors);
  for (at::Tensor& norm : norms) norm = norm.to(norms[0].device(), at::kFloat, /*non_blocking=*/true);
  return at::linalg_vector_norm(at::stack(norms));
}

at::Tensor clip_grad_norm(const std::vector<at::Tensor>& gradients, std::optional<double> max_norm) {
  const c10::NoGradGuard no_grad;
  const at::Tensor norm = global_norm(gradients);
  if (!max_norm || gradients.empty()) return norm;
  const at::Tensor factor = at::clamp_max(*max_norm / (norm + 1e-6), 1.0);
  at::_foreach_mul_(gradients, factor);
  return norm;
}

}  // namespace tessera
