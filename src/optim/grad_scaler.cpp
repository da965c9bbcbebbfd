#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "src/optim/grad_scaler.h"

namespace tessera {

GradScaler::GradScaler(bool on, const at::Device& device) {
  if (!on) return;
  scale_ = at::full({}, State{}.scale, at::TensorOptions(device).dtype(at::kFloat));
  good_steps_ = at::zeros_like(scale_);
}

void GradScaler::unscale(const std::vector<at::Tensor>& gradients) const {
  const c10::NoGradGuard no_grad;
  if (scale_.defined() && !gradients.empty()) at::_foreach_mul_(gradients, scale_.reciprocal());
}

at::Tensor GradScaler::can_shrink() const {
  return scale_ > 1;
}

void GradScaler::settle(const at::Tensor& bad, const at::Tensor& ignored) {
  constexpr double kPatience = 2000;
  if (!scale_.defined()) return;
  const c10::NoGradGuard no_grad;
  const at::Tensor good_steps = good_steps_ + 1, grows = good_steps == kPatience;
  const at::Tensor scale = at::where(bad, at::clamp_min(scale_ / 2, 1.0), at::where(grows, scale_ * 2, scale_));
  // The tensors change in place, because a recorded update changes them, too.
  good_steps_.copy_(at::where(ignored, good_steps_, good_steps.masked_fill(bad | grows, 0.0)));
  scale_.copy_(at::where(ignored, scale_, scale));
}

at::Tensor GradScaler::numbers() const {
  return at::stack({scale_, good_steps_});
}

GradScaler::State GradScaler::state_of(const at::Tensor& numbers) {
  const at::Tensor read = numbers.to(at::kCPU, at::kDouble);
  return {read[0].item<double>(), read[1].item<std::int64_t>()};
}

void GradScaler::restore(const State& state) {
  if (!scale_.defined()) return;
  scale_.fill_(state.scale);
  good_steps_.fill_(static_cast<double>(state.good_steps));
}

}  // namespace tessera
