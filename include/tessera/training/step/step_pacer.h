#pragma once

#include <deque>
#include <functional>

#include <c10/core/Device.h>

namespace tessera {

/// Marks the work that a device has been given so far. Calling the result waits until the device is through with it; on
/// the CPU it returns at once.
std::function<void()> mark_device(const at::Device& device);

/// Keeps the host from running far ahead of a GPU: while two steps are under way, the next one is not begun. The queue then
/// never runs dry, yet the host's clock and its waiting for data follow the device, and memory of few steps is held.
class StepPacer {
 public:
  /// mark: as mark_device().
  explicit StepPacer(std::function<std::function<void()>()> mark) : mark_(std::move(mark)) {}

  /// Before a step is given to the device.
  void begin_step();
  /// After it was given.
  void end_step() { under_way_.push_back(mark_()); }

 private:
  std::function<std::function<void()>()> mark_;
  std::deque<std::function<void()>> under_way_;
};

}  // namespace tessera
