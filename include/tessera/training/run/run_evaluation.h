#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/evaluation/task.h>
#include <tessera/training/config/config.h>
#include <tessera/training/run/training_run.h>

namespace tessera {

/// The data, settings and loss of a run for its evaluation tasks after `step` updates.
EvaluationContext evaluation_context(const TrainingRun& run, const Config& config, std::int64_t step = 0);

/// Looks whether the run's evaluation tasks fit model and data (check_task). Throws TaskMisfit where one does not, and
/// UserError where data cannot be read; if `unreadable` is given, that is no error: it gets the messages.
void check_evaluation(const TrainingRun& run, const Config& config, std::vector<std::string>* unreadable = nullptr);

}  // namespace tessera
