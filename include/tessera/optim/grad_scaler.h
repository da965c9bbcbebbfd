#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera {

/// Dynamic loss scaling for float16 (Micikevicius et al. 2018, section 3.2): the loss is multiplied before the backward
/// pass, so that small gradients do not vanish, and the gradients are divided again. An overflow halves the scale and
/// costs that step's update; after 2,000 steps without one the scale doubles. Constants as torch.amp.GradScaler's. Scale and
/// count are on the device, and only state() waits for it.
class GradScaler {
 public:
  struct State {
    double scale = 65536;
    std::int64_t good_steps = 0;  // since the scale changed last
  };

  /// Off, the scale is 1 for good.
  explicit GradScaler(bool on, const at::Device& device = at::kCPU);

  /// float32 scalar; undefined when off.
  const at::Tensor& scale() const { return scale_; }
  /// Divides the gradients by the scale, in place.
  void unscale(const std::vector<at::Tensor>& gradients) const;
  /// Whether a smaller scale may mend gradients that are not finite: bool scalar. Only when on.
  at::Tensor can_shrink() const;
  /// After a step: bad, whether its gradients were not finite; but nothing where `ignored` (bool scalars).
  void settle(const at::Tensor& bad, const at::Tensor& ignored);
  /// Scale and good steps as they are, float32 [2]. Only when on.
  at::Tensor numbers() const;

  /// What numbers() said, on the host.
  static State state_of(const at::Tensor& numbers);
  State state() const { return scale_.defined() ? state_of(numbers()) : State{}; }
  void restore(const State& state);

 private:
  at::Tensor scale_, good_steps_;  // float32 scalars; undefined when off
};

}  // namespace tessera
