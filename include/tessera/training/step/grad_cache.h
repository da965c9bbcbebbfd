#pragma once

#include <cstdint>
#include <string>

#include <tessera/distributed/gradient_reducer.h>
#include <tessera/training/run/training_run.h>

namespace tessera {

/// How a cached step is cut.
struct GradCacheStep {
  std::int64_t chunk = 1;  // samples that the towers see at a time
  std::string precision;   // as in forward_loss
  at::Tensor weight;       // factor of the loss whose gradients are taken, a scalar on the device; undefined: 1
  bool reduce = true;      // average the gradients over ranks, as GradientReducer::backward
  std::uint64_t seed = 0;  // of what is random inside the towers but not of a row
  at::Tensor row_keys{};   // [B], of what is random of a row (models/per_sample_rng.h); undefined: follows from seed
};

/// One forward and backward pass in which the towers' activations exist for one chunk at a time, the loss's for the
/// whole batch (GradCache, Gao et al. 2021): features of all chunks without gradient, the loss and its gradient by the
/// features, then each chunk again with gradient. Works with every objective, for that sees features alone. Both
/// passes of a chunk draw the same random numbers, so patch dropout agrees; with row_keys it is that of one pass as
/// well. Gradients equal those of one pass over the batch, but for batch norm, whose statistics are those of a chunk
/// (its running averages move once). Returns the losses, detached.
Losses cached_backward(TrainingRun& run, GradientReducer& gradients, const Batch& batch, const GradCacheStep& step,
                       const StepContext& context);

}  // namespace tessera
