#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/Tensor.h>
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include "src/evaluation/metrics/cosine.h"
#include "src/evaluation/metrics/probes.h"
#include "src/evaluation/metrics/retrieval.h"

namespace tessera::metrics {
namespace {

struct Minimum {
  at::Tensor point;  // double [n]
  double value = 0;
  double gradient = 0;  // norm of the gradient at `point`, computed by minimize_lbfgs()'s argument `size`
  std::int64_t iterations = 0;
  bool converged = false;
};

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

// Minimizes by limited-memory BFGS with a line search for the strong Wolfe conditions (Nocedal & Wright, algorithms 7.5, 3.5
// and 3.6). `function` returns the value and the gradient at a point. `size` returns a norm of a gradient, such as its greatest
// absolute entry. Stops if this norm is at most `tolerance`, if no step makes progress in double precision, or after
// max_iterations.
Minimum minimize_lbfgs(const Function& function, at::Tensor start, double tolerance, std::int64_t max_iterations,
                       const std::function<double(const at::Tensor&)>& size) {
  constexpr std::size_t history = 20;
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

void check_data(const char* who, const at::Tensor& features, const at::Tensor& labels, std::int64_t num_classes) {
  TORCH_CHECK(features.dim() == 2 && labels.dim() == 1 && labels.size(0) == features.size(0), who,
              ": features and labels must be [N, D] and [N], got ", features.sizes(), " and ", labels.sizes());
  TORCH_CHECK(labels.numel() == 0 ||
                  (labels.min().item<std::int64_t>() >= 0 && labels.max().item<std::int64_t>() < num_classes),
              who, ": labels must lie in 0..", num_classes - 1);
}

/// Returns the mean cross-entropy. If `gradient` is true, replaces the logits by their gradient.
double cross_entropy(at::Tensor& logits, const at::Tensor& labels, bool gradient) {
  const auto rows = static_cast<double>(labels.size(0));
  const at::Tensor log_sum = logits.logsumexp(1, true);
  const at::Tensor column = labels.unsqueeze(1);
  const double loss = (log_sum - logits.gather(1, column)).sum().item<double>() / rows;
  if (gradient) {
    logits.sub_(log_sum).exp_();
    logits.scatter_add_(1, column, at::full(column.sizes(), -1.0, logits.options()));
    logits.div_(rows);
  }
  return loss;
}

/// While an object of this class exists, small problems run on one thread. For thousands of tiny products, thread barriers cost
/// more time than threads save (up to fifty times more on a busy machine).
class SmallProblem {
 public:
  explicit SmallProblem(std::int64_t products) : threads_(at::get_num_threads()) {
    if (products < kSmall) at::set_num_threads(1);
  }
  ~SmallProblem() {
    if (at::get_num_threads() != threads_) at::set_num_threads(threads_);
  }
  SmallProblem(const SmallProblem&) = delete;
  SmallProblem& operator=(const SmallProblem&) = delete;

 private:
  static constexpr std::int64_t kSmall = 4'000'000;
  int threads_;
};

at::Tensor compute_logits(const at::Tensor& features, const at::Tensor& weight, const at::Tensor& bias) {
  return at::addmm(bias, features, weight.t());
}

}  // namespace

LogisticRegression fit_logistic_regression(const at::Tensor& features, const at::Tensor& labels,
                                           std::int64_t num_classes, double l2, const LogisticRegression* start,
                                           double tolerance, std::int64_t max_iterations) {
  check_data("fit_logistic_regression", features, labels, num_classes);
  TORCH_CHECK(features.size(0) > 0, "fit_logistic_regression: no training samples");
  const at::Tensor given = features.to(at::kDouble);
  const at::Tensor y = labels.to(given.device(), at::kLong);
  const std::int64_t width = given.size(1);
  const SmallProblem one_thread(given.size(0) * width * num_classes);
  const std::int64_t split = num_classes * width;  // number of weights; the parameter vector `point` holds the weights, then the biases

  // Solves for u = W diag(scale) and v = b + W mean, the parameters for the standardized inputs z = (x - mean) / scale. The minimum is the
  // same as for x, because the bias has no penalty, but the problem is far better conditioned. The square of `scale` is the curvature at
  // the start, (C - 1) / C^2 * var(x) + l2.
  const auto classes = static_cast<double>(num_classes);
  const at::Tensor mean = given.mean(0);
  const at::Tensor variance = (given - mean).square().mean(0) * ((classes - 1) / (classes * classes)) + l2;
  const at::Tensor scale = variance.sqrt().clamp_min(std::max(1e-6 * std::sqrt(variance.max().item<double>()), 1e-150));
  const at::Tensor z = (given - mean) / scale;
  const auto weights_of = [&](const at::Tensor& point) {
    return point.narrow(0, 0, split).view({num_classes, width}) / scale;
  };
  const auto function = [&](const at::Tensor& point) {
    const at::Tensor u = point.narrow(0, 0, split).view({num_classes, width});
    const at::Tensor weight = u / scale;
    at::Tensor logits = compute_logits(z, u, point.narrow(0, split, num_classes));
    const double loss = cross_entropy(logits, y, true) + l2 / 2 * weight.square().sum().item<double>();
    const at::Tensor gradient = at::cat({(logits.t().matmul(z) + l2 * weight / scale).flatten(), logits.sum(0)});
    return std::pair(loss, gradient);
  };
  // Returns the greatest absolute entry of the gradient with respect to W and b.
  const auto size = [&](const at::Tensor& gradient) {
    const at::Tensor by_bias = gradient.narrow(0, split, num_classes);
    const at::Tensor by_weight =
        gradient.narrow(0, 0, split).view({num_classes, width}) * scale + by_bias.unsqueeze(1) * mean;
    return std::max(by_weight.abs().max().item<double>(), by_bias.abs().max().item<double>());
  };
  at::Tensor first = at::zeros({split + num_classes}, given.options());
  if (start != nullptr) {
    const at::Tensor weight = start->weight.to(given.device());
    first = at::cat({(weight * scale).flatten(), start->bias.to(given.device()) + weight.matmul(mean)});
  }
  const Minimum minimum = minimize_lbfgs(function, first, tolerance, max_iterations, size);
  LogisticRegression out;
  out.weight = weights_of(minimum.point);
  out.bias = minimum.point.narrow(0, split, num_classes) - out.weight.matmul(mean);
  out.objective = minimum.value;
  out.log_loss = minimum.value - l2 / 2 * out.weight.square().sum().item<double>();
  out.iterations = minimum.iterations;
  out.converged = minimum.converged;
  return out;
}

at::Tensor predict(const LogisticRegression& model, const at::Tensor& features) {
  return compute_logits(features.to(at::kDouble), model.weight, model.bias).argmax(1);
}

ClassifierScores measure_classifier(const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& features,
                                    const at::Tensor& labels) {
  check_data("measure_classifier", features, labels, weight.size(0));
  if (labels.numel() == 0) return {};
  at::Tensor logits = compute_logits(features.to(at::kDouble), weight, bias);
  const at::Tensor truth = labels.to(logits.device(), at::kLong);
  ClassifierScores out{.prediction = logits.argmax(1)};
  out.top1 = share_equal(out.prediction, truth);
  out.log_loss = cross_entropy(logits, truth, false);
  return out;
}

LinearProbeScores linear_probe_lbfgs(const at::Tensor& train_features, const at::Tensor& train_labels,
                                     const at::Tensor& test_features, const at::Tensor& test_labels,
                                     std::int64_t num_classes, double l2) {
  check_data("linear_probe_lbfgs", test_features, test_labels, num_classes);
  const LogisticRegression model = fit_logistic_regression(train_features, train_labels, num_classes, l2);
  LinearProbeScores out;
  out.objective = model.objective;
  out.train_log_loss = model.log_loss;
  out.train_top1 = share_equal(predict(model, train_features), train_labels.to(model.weight.device()));
  const ClassifierScores test = measure_classifier(model.weight, model.bias, test_features, test_labels);
  out.test_top1 = test.top1;
  out.test_log_loss = test.log_loss;
  out.test_prediction = test.prediction;
  return out;
}

AdamwProbe linear_probe_adamw(const at::Tensor& features, const at::Tensor& labels, const at::Tensor& weight,
                              const at::Tensor& bias, const at::Tensor& batches, double lr, double weight_decay) {
  check_data("linear_probe_adamw", features, labels, weight.size(0));
  TORCH_CHECK(
      weight.dim() == 2 && weight.size(1) == features.size(1) && bias.dim() == 1 && bias.size(0) == weight.size(0),
      "linear_probe_adamw: weight and bias must be [C, ", features.size(1), "] and [C], got ", weight.sizes(), " and ",
      bias.sizes());
  TORCH_CHECK(batches.dim() == 2, "linear_probe_adamw: batches must be [S, b], got ", batches.sizes());
  constexpr double kBeta1 = 0.9, kBeta2 = 0.999, kEpsilon = 1e-8;
  const at::Tensor x = features.to(at::kDouble);
  const at::Tensor y = labels.to(x.device(), at::kLong);
  struct Slot {
    at::Tensor value, first, second;
  };
  const auto slot = [&](const at::Tensor& initial) {
    const at::Tensor value = initial.to(x.device(), at::kDouble).clone();
    return Slot{value, at::zeros_like(value), at::zeros_like(value)};
  };
  std::array<Slot, 2> slots = {slot(weight), slot(bias)};
  const std::int64_t steps = batches.size(0);
  AdamwProbe out;
  std::vector<double> losses;
  for (std::int64_t s = 0; s < steps; ++s) {
    const at::Tensor rows = batches[s].to(x.device());
    const at::Tensor input = x.index_select(0, rows);
    at::Tensor logits = compute_logits(input, slots[0].value, slots[1].value);
    losses.push_back(cross_entropy(logits, y.index_select(0, rows), true));
    const std::array<at::Tensor, 2> gradients = {logits.t().matmul(input), logits.sum(0)};
    const double rate = lr * (1 + std::cos(M_PI * static_cast<double>(s) / static_cast<double>(steps))) / 2;
    const double scale1 = 1 - std::pow(kBeta1, static_cast<double>(s + 1));
    const double scale2 = 1 - std::pow(kBeta2, static_cast<double>(s + 1));
    for (std::size_t i = 0; i < slots.size(); ++i) {
      slots[i].value.mul_(1 - rate * weight_decay);
      slots[i].first.mul_(kBeta1).add_(gradients[i], 1 - kBeta1);
      slots[i].second.mul_(kBeta2).addcmul_(gradients[i], gradients[i], 1 - kBeta2);
      slots[i].value.addcdiv_(slots[i].first, (slots[i].second / scale2).sqrt_().add_(kEpsilon), -rate / scale1);
    }
  }
  out.losses = at::tensor(losses, at::kDouble);
  out.weight = slots[0].value;
  out.bias = slots[1].value;
  out.train_top1 = share_equal(compute_logits(x, out.weight, out.bias).argmax(1), y);
  return out;
}

Sweep hyperparameter_sweep(std::int64_t count, const std::vector<std::int64_t>& initial,
                           const std::function<double(std::int64_t)>& accuracy, std::int64_t span) {
  TORCH_CHECK(!initial.empty(), "hyperparameter_sweep: initial is empty");
  for (const std::int64_t index : initial)
    TORCH_CHECK(index >= 0 && index < count, "hyperparameter_sweep: initial must lie in 0..", count - 1, ", got ",
                index);
  Sweep out;
  std::map<std::int64_t, double> known;
  const auto best_of = [&](const std::vector<std::int64_t>& points) {
    std::int64_t best = points.front();
    for (const std::int64_t point : points) {
      out.visited.push_back(point);
      if (!known.contains(point)) known[point] = accuracy(point);
      if (known[point] > known[best]) best = point;
    }
    return best;
  };
  out.best_index = best_of(initial);
  for (; span >= 1; span /= 2) {
    const std::int64_t best = out.best_index;
    out.best_index = best_of({std::max<std::int64_t>(best - span, 0), best, std::min(best + span, count - 1)});
  }
  return out;
}

KnnScores knn_classification(const at::Tensor& train_features, const at::Tensor& train_labels,
                             const at::Tensor& test_features, const at::Tensor& test_labels, std::int64_t num_classes,
                             std::int64_t k, double temperature) {
  TORCH_CHECK(train_features.dim() == 2 && train_labels.dim() == 1 && train_labels.size(0) == train_features.size(0),
              "knn_classification: training features and labels must be [N, D] and [N], got ", train_features.sizes(),
              " and ", train_labels.sizes());
  TORCH_CHECK(test_features.dim() == 2 && test_labels.dim() == 1 && test_labels.size(0) == test_features.size(0),
              "knn_classification: test features and labels must be [M, D] and [M], got ", test_features.sizes(),
              " and ", test_labels.sizes());
  TORCH_CHECK(train_labels.numel() > 0, "knn_classification: no training samples");
  TORCH_CHECK(train_labels.min().item<std::int64_t>() >= 0 && train_labels.max().item<std::int64_t>() < num_classes,
              "knn_classification: training labels must lie in 0..", num_classes - 1);
  TORCH_CHECK(k > 0 && temperature > 0, "knn_classification: k and temperature must be positive");
  KnnScores out;
  const auto [neighbors, cosines] = nearest_by_cosine(test_features, train_features, k);
  out.neighbors = neighbors;
  const at::Tensor labels =
      train_labels.to(neighbors.device()).index_select(0, neighbors.flatten()).view(neighbors.sizes());
  // exp(1 / temperature) overflows for temperatures below 1/700. Subtracting a common shift does not change the shares of the
  // votes.
  const at::Tensor shift = temperature < 1.0 / 500 ? cosines.amax(1, true) : at::zeros({1, 1}, cosines.options());
  const at::Tensor votes = at::zeros({cosines.size(0), num_classes}, cosines.options())
                               .scatter_add_(1, labels, ((cosines - shift) / temperature).exp());
  out.probabilities = votes / votes.sum(1, true);
  const std::int64_t places = std::min<std::int64_t>({5, neighbors.size(1), num_classes});
  const at::Tensor best = best_first(votes, places);
  out.prediction = best.select(1, 0).contiguous();
  const at::Tensor truth = test_labels.to(best.device(), at::kLong);
  const at::Tensor counted = truth.ge(0);
  out.in_top5 = best.eq(truth.unsqueeze(1)).any(1);
  const at::Tensor right = best.eq(truth.unsqueeze(1)).index({counted}).to(at::kDouble);  // [labeled samples, predictions], best first
  if (right.size(0) > 0) {
    out.top1 = right.select(1, 0).mean().item<double>();
    out.top5 = right.sum(1).mean().item<double>();
  }
  return out;
}

}  // namespace tessera::metrics
