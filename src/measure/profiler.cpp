#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include <ATen/record_function.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include "src/measure/profiler.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

namespace kineto = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;

// CUDA runtime calls that wait for the GPU. cudaMemcpyAsync is not among them, because with pageable memory it waits only sometimes, and
// LibTorch calls cudaStreamSynchronize after it.
constexpr std::array kWaiting = {"cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy", "cudaStreamSynchronize"};

// Adds each event's own time to `shares`: its seconds without the seconds of the events that are nested in it. All events must be of the
// same thread.
void add_own_times(std::vector<const kineto::KinetoEvent*> events, std::map<std::string, Profiler::Share>& shares) {
  std::ranges::sort(events, [](const auto* a, const auto* b) {
    return a->startNs() != b->startNs() ? a->startNs() < b->startNs() : a->endNs() > b->endNs();
  });
  std::vector<const kineto::KinetoEvent*> open;
  for (const kineto::KinetoEvent* event : events) {
    while (!open.empty() && open.back()->endNs() <= event->startNs()) open.pop_back();
    const double seconds = static_cast<double>(event->durationNs()) * 1e-9;
    if (!open.empty()) shares[open.back()->name()].seconds -= seconds;
    Profiler::Share& share = shares[event->name()];
    share.seconds += seconds;
    ++share.calls;
    open.push_back(event);
  }
}

}  // namespace

struct Profiler::Impl {
  at::Device device;
  std::optional<at::RecordFunction> mark;
  std::unique_ptr<kineto::ProfilerResult> result;  // null while running
};

Profiler::Profiler(const at::Device& device) : impl_(new Impl{device, {}, nullptr}) {
  std::set<ActivityType> activities{ActivityType::CPU};
  if (!device.is_cpu()) activities.insert(ActivityType::CUDA);
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO,
                                                     /*report_input_shapes=*/true);
  kineto::prepareProfiler(config, activities);
  kineto::enableProfiler(config, activities);
}

Profiler::~Profiler() {
  if (!stopped()) stop();
}

void Profiler::mark(const std::string& name) {
  impl_->mark.emplace(at::RecordScope::USER_SCOPE);
  if (impl_->mark->isActive()) impl_->mark->before(name);
}

void Profiler::end_mark() {
  impl_->mark.reset();
}

void Profiler::stop() {
  end_mark();
  impl_->result = kineto::disableProfiler();
}

bool Profiler::stopped() const {
  return impl_->result != nullptr;
}

void Profiler::save(const std::string& path) const {
  const std::string aside = path + ".tmp.json";
  impl_->result->save(aside);
  std::error_code error;
  std::filesystem::rename(aside, path, error);
  if (error) user_error(path, ": cannot write the profiler's trace: ", error.message());
}

std::vector<Profiler::Share> Profiler::shares() const {
  std::map<std::string, Share> by_name;
  std::map<std::uint64_t, std::vector<const kineto::KinetoEvent*>> by_thread;
  for (const kineto::KinetoEvent& event : impl_->result->events()) {
    if (impl_->device.is_cpu()) {
      if (event.scope() != static_cast<std::uint8_t>(at::RecordScope::USER_SCOPE))
        by_thread[event.startThreadId()].push_back(&event);
    } else if (event.deviceType() != at::kCPU) {
      Share& share = by_name[event.name()];
      share.seconds += static_cast<double>(event.durationNs()) * 1e-9;
      ++share.calls;
    }
  }
  for (const auto& [thread, events] : by_thread) add_own_times(events, by_name);
  std::vector<Share> out;
  for (auto& [name, share] : by_name) {
    share.name = name;
    out.push_back(share);
  }
  std::ranges::sort(out, std::ranges::greater{}, &Share::seconds);
  return out;
}

std::int64_t Profiler::host_waits() const {
  const auto& events = impl_->result->events();
  const auto marked = [&](const kineto::KinetoEvent& event) {
    return std::ranges::any_of(events, [&](const kineto::KinetoEvent& mark) {
      return mark.scope() == static_cast<std::uint8_t>(at::RecordScope::USER_SCOPE) && mark.deviceType() == at::kCPU &&
             mark.startNs() <= event.startNs() && event.endNs() <= mark.endNs();
    });
  };
  return std::ranges::count_if(events, [&](const kineto::KinetoEvent& event) {
    return event.deviceType() == at::kCPU && contains(kWaiting, event.name()) && marked(event);
  });
}

}  // namespace tessera
