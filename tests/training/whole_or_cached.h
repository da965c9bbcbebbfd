#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/models/per_sample_rng.h"
#include "src/training/step/grad_cache.h"

namespace tessera {

struct StepOutcome {
  Losses losses;
  double loss = 0;                              // the total
  std::map<std::string, at::Tensor> gradients;  // by parameter name; parameters without a gradient are left out
};

/// Returns the loss and gradients of a batch. If `chunk` is 0, a single pass computes them. Otherwise GradCache computes them in chunks of
/// `chunk` samples. `rows` are the samples' keys for random numbers and may be undefined.
inline StepOutcome whole_or_cached(TrainingRun& run, const Batch& batch, std::int64_t chunk, const at::Tensor& rows = {},
                                   const StepContext& context = {}) {
  std::vector<at::Tensor> parameters;
  for (const NamedParameter& each : run.optimizer->parameters()) parameters.push_back(each.tensor);
  GradientReducer reducer(parameters, {}, 25);
  StepOutcome out;
  if (chunk == 0) {
    const RowRngScope keyed(rows);
    out.losses = forward_loss(run, batch, "float32", context);
    reducer.backward(out.losses.total, BackwardPass::last);
  } else {
    out.losses = cached_backward(run, reducer, batch, {chunk, "float32", {}, true, 7, rows}, context);
  }
  out.loss = out.losses.total.item<double>();
  for (const NamedParameter& each : run.optimizer->parameters())
    if (each.tensor.grad().defined()) out.gradients[each.name] = each.tensor.grad();
  return out;
}

/// Expects two steps to have the same loss and terms, up to 1e-5 * (1 + value), and gradients of the same parameters. For each gradient,
/// expects |ours - theirs| <= tolerance * |theirs| + floor, where |x| is the Euclidean norm.
inline void expect_same_step(const StepOutcome& ours, const StepOutcome& theirs, const std::string& which, double floor = 1e-7,
                             double tolerance = 1e-5) {
  EXPECT_NEAR(ours.loss, theirs.loss, 1e-5 * (1 + theirs.loss)) << which;
  ASSERT_EQ(ours.losses.terms.size(), theirs.losses.terms.size()) << which;
  for (std::size_t i = 0; i < theirs.losses.terms.size(); ++i) {
    const auto& [name, term] = theirs.losses.terms[i];
    const double value = term.item<double>();
    EXPECT_NEAR(ours.losses.terms[i].second.item<double>(), value, 1e-5 * (1 + std::abs(value))) << name << ", " << which;
  }
  ASSERT_FALSE(theirs.gradients.empty());
  ASSERT_EQ(ours.gradients.size(), theirs.gradients.size()) << which;
  for (const auto& [name, gradient] : theirs.gradients)
    EXPECT_LE((ours.gradients.at(name) - gradient).norm().item<double>(), tolerance * gradient.norm().item<double>() + floor)
        << name << ", " << which;
}

}  // namespace tessera
