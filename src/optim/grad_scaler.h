#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera {

/// Dynamic loss scaling for float16 (Micikevicius et al. 2018, section 3.2). The loss is multiplied by a scale before the backward pass, so
/// that small gradients do not vanish, and the gradients are divided by the scale. After an overflow the scale is halved and the step's
/// update is skipped; after 2,000 steps without an overflow the scale is doubled. The constants are those of torch.amp.GradScaler. The
/// scale and the step count are on the device; only state() waits for the device.
class GradScaler {
 public:
  struct State {
    double scale = 65536;
    std::int64_t good_steps = 0;  // number of steps without an overflow since the scale last changed
  };

  /// If `on` is false, the scale is always 1.
  explicit GradScaler(bool on, const at::Device& device = at::kCPU);

  /// Returns the scale, a float32 scalar; undefined if scaling is off.
  const at::Tensor& scale() const { return scale_; }
  /// Divides the gradients by the scale, in place.
  void unscale(const std::vector<at::Tensor>& gradients) const;
  /// Returns a bool scalar: whether the scale is still large enough to be halved after an overflow. Must be called only if scaling is on.
  at::Tensor can_shrink() const;
  /// Updates the scale after a step. `bad` and `ignored` are bool scalars: `bad` is true if the step's gradients were
  /// not finite; if `ignored` is true, nothing changes.
  void settle(const at::Tensor& bad, const at::Tensor& ignored);
  /// Returns the scale and the number of good steps, float32 [2]. Must be called only if scaling is on.
  at::Tensor numbers() const;

  /// Converts the result of numbers() to a State on the host.
  static State state_of(const at::Tensor& numbers);
  State state() const { return scale_.defined() ? state_of(numbers()) : State{}; }
  void restore(const State& state);

 private:
  at::Tensor scale_, good_steps_;  // float32 scalars; undefined if scaling is off
};

}  // namespace tessera
