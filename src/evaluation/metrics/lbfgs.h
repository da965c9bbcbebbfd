#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include <ATen/core/Tensor.h>

namespace tessera::metrics {

struct Minimum {
  at::Tensor point;  // double [n]
  double value = 0;
  double gradient = 0;  // norm of the gradient at `point`, computed by minimize_lbfgs()'s argument `size`
  std::int64_t iterations = 0;
  bool converged = false;
};

/// Minimizes by limited-memory BFGS with a line search for the strong Wolfe conditions (Nocedal & Wright, algorithms 7.5, 3.5
/// and 3.6). `function` returns the value and the gradient at a point. `size` returns a norm of a gradient, such as its greatest
/// absolute entry. Stops if this norm is at most `tolerance`, if no step makes progress in double precision, or after
/// max_iterations.
Minimum minimize_lbfgs(const std::function<std::pair<double, at::Tensor>(const at::Tensor&)>& function,
                       at::Tensor start, double tolerance, std::int64_t max_iterations,
                       const std::function<double(const at::Tensor&)>& size, std::size_t history = 20);

}  // namespace tessera::metrics
