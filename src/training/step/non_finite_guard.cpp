#include <cmath>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <tessera/training/step/non_finite_guard.h>

namespace tessera {

NonFiniteGuard::NonFiniteGuard(const std::string& policy, bool float16, std::vector<at::Tensor> buffers,
                               GradScaler& scale)
    : host_decides_(policy == "skip" || float16), scale_(scale) {
  for (at::Tensor& buffer : buffers)
    if (buffer.defined() && buffer.is_floating_point()) buffers_.push_back(std::move(buffer));
}

void NonFiniteGuard::begin() {
  values_.clear();
  for (const at::Tensor& buffer : buffers_) values_.push_back(buffer.detach().clone());
}

NonFiniteGuard::StepDecision NonFiniteGuard::check(const at::Tensor& numbers) {
  const c10::NoGradGuard no_grad;
  const at::Tensor bad = at::logical_not(at::isfinite(numbers).all());
  if (!host_decides_) {
    const at::Tensor now = bad.to(at::kFloat);
    halted_ = halted_.defined() ? at::maximum(halted_, now) : now;
    return StepDecision::update;
  }
  const bool finite = !bad.item<bool>();
  const bool overflow = !finite && scale_.can_shrink() && std::isfinite(numbers[0].item<float>());
  scale_.settle(finite);
  if (finite) return StepDecision::update;
  restore();
  return overflow ? StepDecision::overflow : StepDecision::skip;
}

void NonFiniteGuard::keep_buffers() {
  if (!halted_.defined()) return;
  const c10::NoGradGuard no_grad;
  for (std::size_t i = 0; i < buffers_.size(); ++i)
    buffers_[i].copy_(at::where(halted_.to(buffers_[i].device()) > 0, values_[i], buffers_[i]));
}

void NonFiniteGuard::restore() {
  const c10::NoGradGuard no_grad;
  for (std::size_t i = 0; i < buffers_.size(); ++i) buffers_[i].copy_(values_[i]);
}

}  // namespace tessera
