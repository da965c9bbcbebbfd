#include <algorithm>
#include <mutex>
#include <numeric>

#include <c10/core/Allocator.h>
#include <c10/util/Exception.h>
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

void CostCurve::add(std::int64_t samples, MemoryTrace trace, double flops, double seconds) {
  std::erase_if(points_, [&](const Point& point) { return point.samples == samples; });
  points_.push_back({samples, std::move(trace), flops, seconds});
}

bool CostCurve::measured(std::int64_t samples) const {
  return std::any_of(points_.begin(), points_.end(), [&](const Point& point) { return point.samples == samples; });
}

std::vector<std::pair<const CostCurve::Point*, double>> CostCurve::weights(std::int64_t samples) const {
  TORCH_CHECK(!points_.empty(), "a cost curve without measurements");
  std::vector<std::pair<const Point*, double>> out;
  for (const Point& point : points_)
    if (point.samples == samples) return {{&point, 1.0}};
  const std::size_t count = std::min(points_.size(), degree_ + 1);
  for (std::size_t i = points_.size() - count; i < points_.size(); ++i) {
    double weight = 1;
    for (std::size_t j = points_.size() - count; j < points_.size(); ++j)
      if (j != i)
        weight *= static_cast<double>(samples - points_[j].samples) /
                  static_cast<double>(points_[i].samples - points_[j].samples);
    out.emplace_back(&points_[i], weight);
  }
  return out;
}

MemoryTrace CostCurve::trace(const std::vector<std::pair<const Point*, double>>& weights) const {
  std::vector<double> changes(weights.front().first->trace.changes().size());
  for (const auto& [point, weight] : weights)
    for (std::size_t i = 0; i < changes.size(); ++i) changes[i] += weight * point->trace.changes()[i];
  return MemoryTrace(std::move(changes));
}

double CostCurve::number(std::int64_t samples, const std::function<double(const MemoryTrace&)>& of) const {
  const auto all = weights(samples);
  const std::size_t length = all.front().first->trace.changes().size();
  const bool alike = std::all_of(all.begin(), all.end(),
                                 [&](const auto& each) { return each.first->trace.changes().size() == length; });
  if (alike) return of(trace(all));
  double sum = 0;
  for (const auto& [point, weight] : all) sum += weight * of(point->trace);
  return sum;
}

double CostCurve::peak(std::int64_t samples) const {
  return number(samples, [](const MemoryTrace& trace) { return trace.peak(); });
}

double CostCurve::held(std::int64_t samples) const {
  return number(samples, [](const MemoryTrace& trace) { return trace.held(); });
}

double CostCurve::flops(std::int64_t samples) const {
  double sum = 0;
  for (const auto& [point, weight] : weights(samples)) sum += weight * point->flops;
  return sum;
}

}  // namespace tessera
