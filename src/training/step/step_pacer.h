#pragma once

#include <deque>
#include <functional>

#include <c10/core/Device.h>

namespace tessera {

/// Marks the work that has been queued on a device so far. Returns a function that waits until the device has finished that work;
/// on the CPU the function returns immediately.
std::function<void()> mark_device(const at::Device& device);

/// Returns the seconds that a device needed for some work. May be called once the device has finished that work.
using DeviceSeconds = std::function<double()>;

/// Marks the beginning of work on a device. The returned function marks its end, without waiting for the device. On the CPU, work counts as
/// 0 seconds.
std::function<DeviceSeconds()> time_device(const at::Device& device);

/// Keeps the host from running far ahead of a GPU, without letting the GPU's queue run empty: a step does not start while two earlier steps
/// are in progress. Therefore, the step and waiting times that the host measures are those of the GPU, and memory is held for only a few
/// steps.
class StepPacer {
 public:
  /// `mark` is a function that marks the work queued so far, as mark_device() does.
  explicit StepPacer(std::function<std::function<void()>()> mark) : mark_(std::move(mark)) {}

  /// Must be called before a step is queued on the device.
  void begin_step();
  /// Must be called after the step was queued.
  void end_step() { under_way_.push_back(mark_()); }

 private:
  std::function<std::function<void()>()> mark_;
  std::deque<std::function<void()>> under_way_;
};

}  // namespace tessera
