#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "src/training/step/non_finite_guard.h"

namespace tessera {

NonFiniteGuard::NonFiniteGuard(std::vector<at::Tensor> buffers, GradScaler& scale) : scale_(scale) {
  for (at::Tensor& buffer : buffers)
    if (buffer.defined()) buffers_.push_back(std::move(buffer));
}

void NonFiniteGuard::begin() {
  values_.clear();
  for (const at::Tensor& buffer : buffers_) values_.push_back(buffer.detach().clone());
}

at::Tensor NonFiniteGuard::check(const at::Tensor& numbers) {
  const c10::NoGradGuard no_grad;
  const at::Tensor bad = at::logical_not(at::isfinite(numbers).all());
  if (!halted_.defined()) {
    halted_ = at::zeros_like(bad);
    found_inf_ = at::zeros_like(bad, bad.options().dtype(at::kFloat));
  }
  at::Tensor overflow = at::zeros_like(bad);
  if (scale_.scale().defined()) {
    overflow = bad & scale_.can_shrink() & at::isfinite(numbers[0]) & ~halted_;
    scale_.settle(bad, halted_);
  }
  // These tensors change in place, because a recorded update changes them, too.
  halted_.bitwise_or_(bad & ~overflow);
  found_inf_.copy_(halted_ | overflow);
  return overflow.to(at::kFloat) * static_cast<double>(StepDecision::overflow) +
         halted_.to(at::kFloat) * static_cast<double>(StepDecision::halted);
}

void NonFiniteGuard::keep_buffers() {
  const c10::NoGradGuard no_grad;
  for (std::size_t i = 0; i < buffers_.size(); ++i)
    buffers_[i].copy_(at::where(found_inf_.to(buffers_[i].device()) > 0, values_[i], buffers_[i]));
}

void NonFiniteGuard::restore() {
  const c10::NoGradGuard no_grad;
  for (std::size_t i = 0; i < buffers_.size(); ++i) buffers_[i].copy_(values_[i]);
}

}  // namespace tessera
