#pragma once

#include <deque>
#include <functional>

#include <c10/core/Device.h>

namespace tessera {

/// Marks the work queued on a device so far. Calling the result waits until the device has finished that work; on the CPU it returns
/// immediately.
std::function<void()> mark_device(const at::Device& device);

/// Keeps the host from running far ahead of a GPU: while two steps are in progress, the next one does not start. The GPU's queue then
/// never runs empty, yet the host's timing and its waiting for data follow the device, and memory is held for only a few steps.
class StepPacer {
 public:
  /// mark: a function like mark_device().
  explicit StepPacer(std::function<std::function<void()>()> mark) : mark_(std::move(mark)) {}

  /// Call before a step is queued on the device.
  void begin_step();
  /// Call after it was queued.
  void end_step() { under_way_.push_back(mark_()); }

 private:
  std::function<std::function<void()>()> mark_;
  std::deque<std::function<void()>> under_way_;
};

}  // namespace tessera
