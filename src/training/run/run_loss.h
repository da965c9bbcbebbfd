#pragma once

#include <cstdint>
#include <memory>

#include "src/training/run/training_run.h"
#include <tessera/evaluation/inference.h>
#include <tessera/evaluation/run_loss.h>

namespace tessera {

/// Returns an object that computes the loss of a run in its current state, after `step` updates. The object uses the run's precision and
/// the weights that evaluation.weights names, and it shares the run's modules. The view `image` is preprocessed as in evaluation; other
/// views are preprocessed as in training, with the same random numbers each time. If an image has several captions, the first is used.
std::shared_ptr<const RunLoss> run_loss(const TrainingRun& run, const Config& config, std::int64_t step);

/// Returns an object that computes the loss of a loaded checkpoint with the configuration in the checkpoint; null if the checkpoint has no
/// configuration. For an objective with a teacher, computing the loss throws UserError, because the file does not hold the teacher.
std::shared_ptr<const RunLoss> checkpoint_loss(const InferenceModel& loaded);

}  // namespace tessera
