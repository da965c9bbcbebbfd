#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera {

/// Dynamic loss scaling for float16 (Micikevicius et al. 2018, section 3.2): the loss is multiplied before the backward
/// pass, so that small gradients do not vanish, and the gradients are divided again. An overflow halves the scale and
/// costs that step's update; after 2,000 steps without one the scale doubles. Constants as torch.amp.GradScaler's.
class GradScaler {
 public:
  struct State {
    double scale = 65536;
    std::int64_t good_steps = 0;  // since the scale changed last
  };

  /// Off, the scale is 1 for good.
  explicit GradScaler(bool on) : on_(on) {}

  double value() const { return on_ ? state_.scale : 1.0; }
  /// Divides the gradients by the scale, in place.
  void unscale(const std::vector<at::Tensor>& gradients) const;
  /// Whether a smaller scale may mend gradients that are not finite.
  bool can_shrink() const { return on_ && state_.scale > 1; }
  /// After a step whose gradients were (not) finite.
  void settle(bool finite);

  const State& state() const { return state_; }
  void restore(const State& state) { state_ = state; }

 private:
  bool on_;
  State state_;
};

}  // namespace tessera
