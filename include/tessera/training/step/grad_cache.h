#pragma once

#include <cstdint>
#include <string>

#include <tessera/distributed/gradient_reducer.h>
#include <tessera/training/run/training_run.h>

namespace tessera {

/// The settings of a cached step.
struct GradCacheStep {
  std::int64_t chunk = 1;  // samples that the towers process at a time
  std::string precision;   // as in forward_loss
  at::Tensor weight;       // factor of the loss before the backward pass, a scalar on the device; undefined: 1
  bool reduce = true;      // average the gradients over ranks, see GradientReducer::backward
  std::uint64_t seed = 0;  // seed of the towers' randomness that is not per row
  at::Tensor row_keys{};   // [B], keys of per-row randomness (models/per_sample_rng.h); undefined: derived from seed
};

/// Runs one forward and backward pass in which the towers' activations exist for only one chunk at a time, but the loss sees the
/// whole batch (GradCache, Gao et al. 2021): computes the features of all chunks without gradient, the loss and its gradient with
/// respect to the features, then each chunk again with gradient. Works with every objective, because objectives see only features.
/// Both passes of a chunk draw the same random numbers, so that patch dropout agrees; with row_keys it also agrees with a single
/// pass over the batch. Gradients equal those of a single pass, except with batch norm, which uses the statistics of a chunk (its
/// running averages move once). Returns the losses, detached.
Losses cached_backward(TrainingRun& run, GradientReducer& gradients, const Batch& batch, const GradCacheStep& step,
                       const StepContext& context);

}  // namespace tessera
