#include <algorithm>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>

#include <tessera/measure/pass_cost.h>
#include <tessera/measure/step_meter.h>

namespace tessera {

void CostCurve::measure(std::int64_t samples, const std::function<void()>& body) {
  const FlopCounter counter;
  MemoryTrace trace = MemoryTrace::of(body);
  add(samples, std::move(trace), counter.flops());
}

void CostCurve::add(std::int64_t samples, MemoryTrace trace, double flops) {
  std::erase_if(points_, [&](const Point& point) { return point.samples == samples; });
  points_.push_back({samples, std::move(trace), flops});
}

std::vector<std::pair<const CostCurve::Point*, double>> CostCurve::weights(std::int64_t samples,
                                                                           std::size_t degree) const {
  TORCH_CHECK(!points_.empty(), "a cost curve without measurements");
  std::vector<std::pair<const Point*, double>> out;
  for (const Point& point : points_)
    if (point.samples == samples) return {{&point, 1.0}};
  const std::size_t count = std::min(points_.size(), degree + 1);
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

MemoryTrace CostCurve::trace(std::int64_t samples) const {
  const auto all = weights(samples, degree_);
  const std::size_t length = all.front().first->trace.changes().size();
  if (std::all_of(all.begin(), all.end(),
                  [&](const auto& each) { return each.first->trace.changes().size() == length; })) {
    std::vector<double> changes(length);
    for (const auto& [point, weight] : all)
      for (std::size_t i = 0; i < length; ++i) changes[i] += weight * point->trace.changes()[i];
    return MemoryTrace(std::move(changes));
  }
  const auto sum = [](const auto& points, double (MemoryTrace::*of)() const) {
    double total = 0;
    for (const auto& [point, weight] : points) total += weight * (point->trace.*of)();
    return total;
  };
  // What is held goes on as a line, so that what a forward pass keeps and its backward pass frees stays equal.
  const auto line = weights(samples, 1);
  const double peak = std::max(sum(all, &MemoryTrace::peak), sum(line, &MemoryTrace::peak));
  return MemoryTrace({peak, sum(line, &MemoryTrace::held) - peak});
}

double CostCurve::flops(std::int64_t samples) const {
  double sum = 0;
  for (const auto& [point, weight] : weights(samples, degree_)) sum += weight * point->flops;
  return sum;
}

MemoryTrace PassCost::trace(std::int64_t samples) const {
  std::vector<double> changes = forward.trace(samples).changes();
  const MemoryTrace more = backward.trace(samples);
  changes.insert(changes.end(), more.changes().begin(), more.changes().end());
  return MemoryTrace(std::move(changes));
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
