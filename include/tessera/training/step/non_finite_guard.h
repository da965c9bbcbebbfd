#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <tessera/optim/grad_scaler.h>

namespace tessera {

/// Keeps steps whose loss or gradient is not finite away from weights, moments and buffers (running averages of batch
/// norms, what an objective moves after a step). Policy stop: from the first such step on nothing changes any more, which
/// is decided on the device, so that no step waits for it; the trainer sees it when it reads the numbers back, and the
/// weights are still those that the bad step met. Policy skip, and float16: the host reads each step's decision, and
/// leaves out the update.
class NonFiniteGuard {
 public:
  /// policy: "stop" or "skip". buffers: what a step changes beside the parameters. scale must outlive it.
  NonFiniteGuard(const std::string& policy, bool float16, std::vector<at::Tensor> buffers, GradScaler& scale);

  /// Before the forward pass.
  void begin();

  enum class StepDecision { update, overflow, skip };
  /// After the backward pass. numbers: loss, norm of the unscaled gradients, and whatever else must be finite, [n]
  /// float32, the same on all ranks. overflow: gradients in float16 left their range, and the loss scale shrinks.
  StepDecision check(const at::Tensor& numbers);

  /// After the update and Objective::after_step: puts the buffers back where the step is halted, on the device.
  void keep_buffers();
  /// Puts the buffers back as they were at begin().
  void restore();

  /// For Optimizer::step; undefined where the host decides.
  const at::Tensor& found_inf() const { return halted_; }

 private:
  bool host_decides_;
  std::vector<at::Tensor> buffers_, values_;
  GradScaler& scale_;
  at::Tensor halted_;
};

}  // namespace tessera
