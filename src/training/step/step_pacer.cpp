#include <memory>

#include <c10/core/Event.h>

#include "src/training/step/step_pacer.h"

namespace tessera {
namespace {

constexpr std::size_t kStepsAhead = 2;

}  // namespace

std::function<void()> mark_device(const at::Device& device) {
  if (device.is_cpu()) return [] {};
  const auto event = std::make_shared<c10::Event>(device.type());
  event->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  return [event] { event->synchronize(); };
}

std::function<DeviceSeconds()> time_device(const at::Device& device) {
  if (device.is_cpu()) return [] { return [] { return 0.0; }; };
  const auto mark = [device] {
    const auto event = std::make_shared<c10::Event>(device.type(), c10::EventFlag::BACKEND_DEFAULT);  // which has a time
    event->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
    return event;
  };
  return [mark, begin = mark()]() -> DeviceSeconds {
    return [begin, end = mark()] { return begin->elapsedTime(*end) / 1000; };
  };
}

void StepPacer::begin_step() {
  while (under_way_.size() >= kStepsAhead) {
    under_way_.front()();
    under_way_.pop_front();
  }
}

}  // namespace tessera
