#include <algorithm>
#include <mutex>
#include <numeric>

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <tessera/measure/memory_trace.h>

namespace tessera {
namespace {

class TraceRecorder : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* /*pointer*/, std::int64_t size, std::size_t /*allocated*/, std::size_t /*reserved*/,
                         c10::Device /*device*/) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    changes_.push_back(static_cast<double>(size));
  }
  bool memoryProfilingEnabled() const override { return true; }
  std::vector<double> take() { return std::move(changes_); }

 private:
  std::mutex mutex_;
  std::vector<double> changes_;
};

}  // namespace

MemoryTrace MemoryTrace::of(const std::function<void()>& body) {
  const auto recorder = std::make_shared<TraceRecorder>();
  {
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, recorder);
    body();
  }
  return MemoryTrace(recorder->take());
}

double MemoryTrace::peak() const {
  double level = 0, highest = 0;
  for (const double change : changes_) highest = std::max(highest, level += change);
  return highest;
}

double MemoryTrace::held() const {
  return std::accumulate(changes_.begin(), changes_.end(), 0.0);
}

}  // namespace tessera
