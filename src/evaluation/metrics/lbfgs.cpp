#include "src/evaluation/metrics/lbfgs.h"

#include <deque>

#include <ATen/ATen.h>

namespace tessera::metrics {
namespace {

using Function = std::function<std::pair<double, at::Tensor>(const at::Tensor&)>;

double dot_product(const at::Tensor& a, const at::Tensor& b) {
  return a.dot(b).item<double>();
}

struct Pair {
  at::Tensor step;     // s, the new point minus the old point
  at::Tensor change;   // y, the gradient at the new point minus the gradient at the old point
  double product = 0;  // s . y
};

/// Returns the search direction -H g, computed by the two-loop recursion.
at::Tensor direction(const std::deque<Pair>& pairs, const at::Tensor& gradient) {
  at::Tensor q = gradient.clone();
  std::vector<double> alphas(pairs.size());
  for (std::size_t i = pairs.size(); i-- > 0;) {
    alphas[i] = dot_product(pairs[i].step, q) / pairs[i].product;
    q.sub_(pairs[i].change, alphas[i]);
  }
  if (!pairs.empty()) q.mul_(pairs.back().product / dot_product(pairs.back().change, pairs.back().change));
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const double beta = dot_product(pairs[i].change, q) / pairs[i].product;
    q.add_(pairs[i].step, alphas[i] - beta);
  }
  return q.neg();
}

/// A point along the search direction.
struct Trial {
  double step = 0;
  double value = 0;
  double slope = 0;
  at::Tensor gradient;
};

class LineSearch {
 public:
  LineSearch(const Function& function, const at::Tensor& point, const at::Tensor& along, const Trial& origin)
      : function_(function),
        point_(point),
        along_(along),
        origin_(origin),
        rounding_(1e-14 * std::max(1.0, std::abs(origin.value))) {}

  /// Returns a step that satisfies the strong Wolfe conditions, or the best step found. The step is 0 if no step makes progress.
  Trial run(double first) {
    Trial previous = origin_;
    double step = first;
    for (int i = 0; i < 30; ++i) {
      const Trial trial = at(step);
      if (too_high(trial) || trial.value > previous.value + rounding_) return zoom(previous, trial);
      if (flat(trial)) return trial;
      if (trial.slope >= 0) return zoom(trial, previous);
      previous = trial;
      step *= 2;
    }
    return previous;
  }

 private:
  Trial at(double step) const {
    auto [value, gradient] = function_(point_ + along_ * step);
    return {step, value, dot_product(gradient, along_), gradient};
  }
  /// Returns true if the trial violates the sufficient decrease condition. Allows for rounding errors, because near the minimum
  /// the values differ only by rounding.
  bool too_high(const Trial& trial) const {
    return !(trial.value <= origin_.value + 1e-4 * trial.step * origin_.slope + rounding_);
  }
  bool flat(const Trial& trial) const { return std::abs(trial.slope) <= -0.9 * origin_.slope; }

  /// Searches between two trials. `low` has the smaller value. At `low`, the slope in the direction of `high` is negative.
  Trial zoom(Trial low, Trial high) const {
    for (int i = 0; i < 40; ++i) {
      const Trial trial = at(between(low, high));
      if (too_high(trial) || trial.value > low.value + rounding_) {
        high = trial;
      } else {
        if (flat(trial)) return trial;
        if (trial.slope * (high.step - low.step) >= 0) high = low;
        low = trial;
      }
      if (std::abs(high.step - low.step) < 1e-14 * std::max(1.0, low.step)) break;
    }
    return low;
  }

  /// Returns a step between two trials: the minimum of the cubic through both, but not too close to either.
  static double between(const Trial& a, const Trial& b) {
    const double width = b.step - a.step;
    const double d1 = a.slope + b.slope - 3 * (a.value - b.value) / (a.step - b.step);
    const double inside = d1 * d1 - a.slope * b.slope;
    double step = a.step + width / 2;
    if (inside >= 0 && std::isfinite(b.value)) {
      const double d2 = std::copysign(std::sqrt(inside), width);
      const double cubic = b.step - width * ((b.slope + d2 - d1) / (b.slope - a.slope + 2 * d2));
      if (std::isfinite(cubic)) step = cubic;
    }
    const double low = std::min(a.step, b.step) + 0.1 * std::abs(width);
    const double high = std::max(a.step, b.step) - 0.1 * std::abs(width);
    return std::clamp(step, low, high);
  }

  const Function& function_;
  const at::Tensor& point_;
  const at::Tensor& along_;
  const Trial& origin_;
  double rounding_;
};

}  // namespace

Minimum minimize_lbfgs(const Function& function, at::Tensor start, double tolerance, std::int64_t max_iterations,
                       const std::function<double(const at::Tensor&)>& size, std::size_t history) {
  Minimum out;
  out.point = start.to(at::kDouble).clone();
  auto [value, gradient] = function(out.point);
  std::deque<Pair> pairs;
  out.value = value;
  out.gradient = size(gradient);
  while (out.gradient > tolerance && out.iterations < max_iterations) {
    at::Tensor along = direction(pairs, gradient);
    double slope = dot_product(gradient, along);
    if (!(slope < 0)) {  // restart, because the curvature pairs no longer describe the function
      pairs.clear();
      along = gradient.neg();
      slope = dot_product(gradient, along);
    }
    const double first = pairs.empty() ? std::min(1.0, 1.0 / gradient.abs().sum().item<double>()) : 1.0;
    const Trial origin{0, out.value, slope, gradient};
    const Trial accepted = LineSearch(function, out.point, along, origin).run(first);
    if (accepted.step == 0) {
      if (pairs.empty()) break;
      pairs.clear();
      continue;
    }
    Pair pair{along * accepted.step, accepted.gradient - gradient, 0};
    pair.product = dot_product(pair.step, pair.change);
    out.point = out.point + pair.step;
    out.value = accepted.value;
    gradient = accepted.gradient;
    out.gradient = size(gradient);
    ++out.iterations;
    if (pair.product > 1e-300) pairs.push_back(std::move(pair));
    if (pairs.size() > history) pairs.pop_front();
  }
  out.converged = out.gradient <= tolerance;
  return out;
}

}  // namespace tessera::metrics
