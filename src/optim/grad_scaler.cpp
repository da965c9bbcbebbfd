#include <algorithm>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <tessera/optim/grad_scaler.h>

namespace tessera {

void GradScaler::unscale(const std::vector<at::Tensor>& gradients) const {
  const c10::NoGradGuard no_grad;
  if (on_ && !gradients.empty()) at::_foreach_mul_(gradients, 1.0 / state_.scale);
}

void GradScaler::settle(bool finite) {
  constexpr std::int64_t kPatience = 2000;
  if (!on_) return;
  if (!finite) {
    state_ = {std::max(state_.scale / 2, 1.0), 0};
  } else if (++state_.good_steps == kPatience) {
    state_ = {state_.scale * 2, 0};
  }
}

}  // namespace tessera
