#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include <tessera/optim/grad_scaler.h>

namespace tessera {

/// Prevents steps with a non-finite loss or gradient from changing weights, moments and buffers (running averages of batch norm, an
/// objective's counts or centers). The decision is made on the device, so that no step waits for the host. After the first bad
/// step nothing changes until the host has read the numbers and calls go_on(): the weights are then still those before the bad
/// step, and later steps already queued on the device have no effect. If only float16 gradients overflowed, just that step's update
/// is skipped and the loss scale shrinks.
class NonFiniteGuard {
 public:
  /// buffers: tensors that a step changes in addition to the parameters. scale must outlive this object.
  NonFiniteGuard(std::vector<at::Tensor> buffers, GradScaler& scale);

  /// The fate of a step.
  enum class StepDecision {
    update,
    overflow,  // its gradients overflowed float16: no update
    halted,    // it was not finite, or came after such a step: no update
  };

  /// Call before the forward pass.
  void begin();
  /// Call after the backward pass; updates the loss scale. numbers [n] float32, the same on all ranks: loss, norm of the unscaled
  /// gradients, and other numbers that must be finite. Returns a StepDecision as a number, a float32 scalar on the device.
  at::Tensor check(const at::Tensor& numbers);
  /// Returns 1 if this step's update must be skipped, else 0, as a float32 scalar on the device for Optimizer::step.
  const at::Tensor& found_inf() const { return found_inf_; }
  /// Call after the update and Objective::after_step: restores the buffers if the update was skipped.
  void keep_buffers();

  /// Restores the buffers to their values at begin().
  void restore();
  /// Lets steps take effect again.
  void go_on() { halted_.reset(); }

 private:
  std::vector<at::Tensor> buffers_, values_;
  GradScaler& scale_;
  at::Tensor halted_;  // bool scalar; undefined: false
  at::Tensor found_inf_;
};

}  // namespace tessera
