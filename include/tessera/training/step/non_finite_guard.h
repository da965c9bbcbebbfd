#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include <tessera/optim/grad_scaler.h>

namespace tessera {

/// Keeps steps whose loss or gradient is not finite away from weights, moments and buffers (running averages of batch
/// norms, what an objective counts or moves). All is decided on the device, so that no step waits for it. From the first
/// bad step on nothing changes any more, until the host has read the numbers and says go_on(): the weights are then still
/// those that the bad step met, and steps given to the device meanwhile were made in vain. But where gradients in float16
/// have only left their range, that one step's update is left out and the loss scale shrinks.
class NonFiniteGuard {
 public:
  /// buffers: what a step changes beside the parameters. scale must outlive it.
  NonFiniteGuard(std::vector<at::Tensor> buffers, GradScaler& scale);

  /// What became of a step.
  enum class StepDecision {
    update,
    overflow,  // its gradients left float16's range: no update
    halted,    // it was not finite, or came after such a step: no update
  };

  /// Before the forward pass.
  void begin();
  /// After the backward pass; settles the loss scale. numbers: loss, norm of the unscaled gradients, and whatever else must
  /// be finite, [n] float32, the same on all ranks. Returns a StepDecision as a number, float32 scalar on the device.
  at::Tensor check(const at::Tensor& numbers);
  /// 1 where this step's update is left out, float32 scalar on the device: for Optimizer::step.
  const at::Tensor& found_inf() const { return found_inf_; }
  /// After the update and Objective::after_step: puts the buffers back where the update is left out.
  void keep_buffers();

  /// Puts the buffers back as they were at begin().
  void restore();
  /// Steps change things again.
  void go_on() { halted_.reset(); }

 private:
  std::vector<at::Tensor> buffers_, values_;
  GradScaler& scale_;
  at::Tensor halted_;  // bool scalar; undefined: not
  at::Tensor found_inf_;
};

}  // namespace tessera
