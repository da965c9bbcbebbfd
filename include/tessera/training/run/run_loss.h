#pragma once

#include <cstdint>
#include <memory>

#include <tessera/evaluation/inference.h>
#include <tessera/evaluation/run_loss.h>
#include <tessera/training/run/training_run.h>

namespace tessera {

/// The loss of a run after `step` updates as it stands now: the weights that evaluation.weights names, in the run's
/// precision. It shares the run's modules. The view `image` is made as evaluation makes pictures, other views as training
/// does, with the same random numbers each time; of several captions it takes the first.
std::shared_ptr<const RunLoss> run_loss(const TrainingRun& run, const Config& config, std::int64_t step);

/// The same of a loaded checkpoint, by the configuration that it carries; null when it carries none. Measuring throws
/// UserError for an objective with a teacher, which the file does not hold.
std::shared_ptr<const RunLoss> checkpoint_loss(const InferenceModel& loaded);

}  // namespace tessera
