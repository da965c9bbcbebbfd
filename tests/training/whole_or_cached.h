#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <ATen/core/Tensor.h>

#include <tessera/models/per_sample_rng.h>
#include <tessera/training/step/grad_cache.h>

namespace tessera {

struct StepOutcome {
  double loss = 0;
  std::map<std::string, at::Tensor> gradients;  // only of parameters that have one
};

/// Returns the loss and gradients of a batch, computed in one pass (chunk 0) or in chunks of `chunk` samples by GradCache.
/// rows: the samples' keys for random numbers; may be undefined.
inline StepOutcome whole_or_cached(TrainingRun& run, GradientReducer& reducer, const Batch& batch, std::int64_t chunk,
                                   const at::Tensor& rows, const StepContext& context) {
  StepOutcome out;
  if (chunk == 0) {
    const RowRngScope keyed(rows);
    const Losses losses = forward_loss(run, batch, "float32", context);
    reducer.backward(losses.total, true);
    out.loss = losses.total.item<double>();
  } else {
    out.loss =
        cached_backward(run, reducer, batch, {chunk, "float32", {}, true, 7, rows}, context).total.item<double>();
  }
  for (const NamedParameter& each : run.optimizer->parameters())
    if (each.tensor.grad().defined()) out.gradients[each.name] = each.tensor.grad();
  return out;
}

}  // namespace tessera
