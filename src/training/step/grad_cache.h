#pragma once

#include <cstdint>
#include <string>

#include "src/distributed/gradient_reducer.h"
#include "src/training/run/training_run.h"
#include "src/training/step/step_pacer.h"

namespace tessera {

/// The settings of cached_backward().
struct GradCacheStep {
  std::int64_t chunk = 1;  // number of samples that the towers process at a time
  std::string precision;   // as in forward_loss()
  at::Tensor weight;       // scalar on the device that multiplies the loss before the backward pass; undefined means 1
  bool reduce = true;      // whether to average the gradients over ranks (GradientReducer::backward)
  std::uint64_t seed = 0;  // seed of the towers' randomness, except per-row randomness
  at::Tensor row_keys{};   // [B], keys of per-row randomness (models/per_sample_rng.h); if undefined, they are derived from seed
  std::vector<DeviceSeconds>* forward = nullptr;  // gets the time of the first pass
};

/// Runs one forward and backward pass in which the towers' activations are in memory for only one chunk at a time, although the
/// loss sees the whole batch (GradCache, Gao et al. 2021). First it computes the features of all chunks without gradients, then the
/// loss and its gradient with respect to the features, and then each chunk again with gradients. It works with every objective,
/// because objectives see only features. Both passes of a chunk draw the same random numbers, so patch dropout is the same in both;
/// with row_keys it is also the same as in a single pass over the batch. Gradients equal those of a single pass, except with batch
/// norm, which uses the statistics of one chunk (its running averages are updated only once). Returns the losses, detached.
Losses cached_backward(TrainingRun& run, GradientReducer& gradients, const Batch& batch, const GradCacheStep& step,
                       const StepContext& context);

}  // namespace tessera
