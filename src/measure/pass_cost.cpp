#include <algorithm>
#include <numeric>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>

#include "src/measure/pass_cost.h"
#include "src/measure/step_meter.h"

namespace tessera {

MemoryTrace MemoryTrace::of(const std::function<void()>& body) {
  const MemoryMeter meter;
  body();
  return MemoryTrace(meter.changes());
}

double MemoryTrace::peak() const {
  double level = 0, highest = 0;
  for (const double change : changes_) highest = std::max(highest, level += change);
  return highest;
}

double MemoryTrace::held() const {
  return std::accumulate(changes_.begin(), changes_.end(), 0.0);
}

void CostCurve::measure(std::int64_t samples, const std::function<void()>& body) {
  const FlopCounter counter;
  MemoryTrace trace = MemoryTrace::of(body);
  add(samples, std::move(trace), counter.flops());
}

void CostCurve::add(std::int64_t samples, MemoryTrace trace, double flops) {
  std::erase_if(points_, [&](const Point& point) { return point.samples == samples; });
  points_.push_back({samples, std::move(trace), flops});
}

// Returns the points that determine the curve at `samples`, with their weights. If `samples` itself was measured, returns only its point.
// Otherwise returns the last (degree + 1) points, or all points if there are fewer.
std::vector<CostCurve::Point> CostCurve::weighted(std::int64_t samples, std::size_t degree) const {
  TORCH_CHECK(!points_.empty(), "a cost curve without measurements");
  const std::size_t count = std::min(points_.size(), degree + 1);
  std::vector<Point> out(points_.end() - static_cast<std::ptrdiff_t>(count), points_.end());
  for (const Point& point : points_)
    if (point.samples == samples) out = {point};
  for (Point& point : out) {
    point.weight = 1;
    for (const Point& other : out)
      if (other.samples != point.samples)
        point.weight *=
            static_cast<double>(samples - other.samples) / static_cast<double>(point.samples - other.samples);
  }
  return out;
}

MemoryTrace CostCurve::trace(std::int64_t samples) const {
  const std::vector<Point> all = weighted(samples, degree_);
  std::vector<double> changes(all.front().trace.changes().size());
  if (std::all_of(all.begin(), all.end(), [&](const Point& p) { return p.trace.changes().size() == changes.size(); })) {
    for (const Point& point : all)
      for (std::size_t i = 0; i < changes.size(); ++i) changes[i] += point.weight * point.trace.changes()[i];
    return MemoryTrace(std::move(changes));
  }
  double peak = 0, peak_of_line = 0, held = 0;
  for (const Point& point : all) peak += point.weight * point.trace.peak();
  // The memory that the forward pass keeps and the memory that the backward pass frees are both extrapolated linearly. The two amounts
  // therefore stay equal.
  for (const Point& point : weighted(samples, 1)) {
    peak_of_line += point.weight * point.trace.peak();
    held += point.weight * point.trace.held();
  }
  peak = std::max(peak, peak_of_line);
  return MemoryTrace({peak, held - peak});
}

double CostCurve::flops(std::int64_t samples) const {
  double sum = 0;
  for (const Point& point : weighted(samples, degree_)) sum += point.weight * point.flops;
  return sum;
}

CostCurve CostCurve::followed_by(const CostCurve& next) const {
  TORCH_CHECK(points_.size() == next.points_.size(), "cost curves of different measurements");
  CostCurve out(degree_);
  for (std::size_t i = 0; i < points_.size(); ++i) {
    const Point &first = points_[i], &second = next.points_[i];
    TORCH_CHECK(first.samples == second.samples, "cost curves of different measurements");
    std::vector<double> changes = first.trace.changes();
    changes.insert(changes.end(), second.trace.changes().begin(), second.trace.changes().end());
    out.add(first.samples, MemoryTrace(std::move(changes)), first.flops + second.flops);
  }
  return out;
}

// Extrapolates both passes together. A loss that works in chunks recomputes tensors in the backward pass instead of keeping them. Compared
// with a loss without chunks, its peak memory is lower in the forward pass and higher in the backward pass.
MemoryTrace PassCost::trace(std::int64_t samples) const {
  return forward.followed_by(backward).trace(samples);
}

void measure_towers(PassCost& cost, const Batch& batch, const std::function<Features(const Batch&)>& encode) {
  Features features;
  cost.forward.measure(batch.size(), [&] { features = encode(batch); });
  std::vector<at::Tensor> outputs, gradients;
  for_each_tensor(features, [&](const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.requires_grad()) return;
    outputs.push_back(tensor);
    gradients.push_back(at::zeros_like(tensor));
  });
  features = {};
  cost.backward.measure(batch.size(), [&] {
    torch::autograd::backward(outputs, gradients);
    outputs.clear();
  });
}

}  // namespace tessera
