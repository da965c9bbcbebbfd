#include <cmath>

#include <ATen/ATen.h>

#include <tessera/objectives/contrastive_objective.h>

namespace tessera {

ContrastiveObjective::ContrastiveObjective(double logit_scale) {
  logit_scale_ = register_parameter("logit_scale", at::full({}, logit_scale, at::kFloat));
}

void ContrastiveObjective::after_step(const StepContext& /*done*/) {
  const at::NoGradGuard no_grad;
  logit_scale_.clamp_(0.0, std::log(100.0));
}

void ContrastiveObjective::share_logit_scale(const at::Tensor& logit_scale) {
  if (parameters_.contains("logit_scale")) parameters_.erase("logit_scale");
  logit_scale_ = logit_scale;
}

at::Tensor ContrastiveObjective::scale(at::ScalarType dtype) const {
  return logit_scale_.to(dtype).exp();
}

at::Tensor ContrastiveObjective::inverse_temperature(std::optional<double> temperature, at::ScalarType dtype) const {
  if (!temperature) return scale(dtype);
  return at::full({}, 1.0 / *temperature, logit_scale_.options().dtype(dtype).requires_grad(false));
}

}  // namespace tessera
