#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "src/optim/grad_scaler.h"

namespace tessera {

/// Prevents steps with a non-finite loss or gradient from changing weights, moments and buffers (running averages of batch norm, an
/// objective's counts or centers). The decision is made on the device, so that no step waits for the host. After the first bad step,
/// nothing changes until the host has learned of this step and calls go_on(). Until then the weights are those before the bad step, and
/// later steps that are already queued on the device have no effect. If only float16 gradients overflowed, the guard skips just that step's
/// update and shrinks the loss scale.
class NonFiniteGuard {
 public:
  /// `buffers` are the tensors that a step changes in addition to the parameters. `scale` must outlive this object.
  NonFiniteGuard(std::vector<at::Tensor> buffers, GradScaler& scale);

  /// What happens to a step's update.
  enum class StepDecision {
    update,
    overflow,  // no update, because the gradients overflowed float16
    halted,    // no update, because this step or an earlier one was not finite
  };

  /// Must be called before the forward pass.
  void begin();
  /// Must be called after the backward pass. Updates the loss scale. `numbers`, float32 [n], are the loss, the norm of the unscaled
  /// gradients, and other numbers that must be finite; they must be the same on all ranks. Returns a StepDecision as a number, a
  /// float32 scalar on the device.
  at::Tensor check(const at::Tensor& numbers);
  /// Returns 1 if this step's update must be skipped, else 0, as a float32 scalar on the device for Optimizer::step.
  const at::Tensor& found_inf() const { return found_inf_; }
  /// Must be called after the update and Objective::after_step(). Restores the buffers if the update was skipped.
  void keep_buffers();

  /// Restores the values that the buffers had at begin().
  void restore();
  /// Lets steps take effect again after a bad step.
  void go_on() {
    if (halted_.defined()) halted_.zero_();
  }

 private:
  std::vector<at::Tensor> buffers_, values_;
  GradScaler& scale_;
  at::Tensor halted_;  // bool scalar; undefined means false, before the first step
  at::Tensor found_inf_;
};

}  // namespace tessera
