#pragma once

#include <string>
#include <vector>

#include <tessera/evaluation/task.h>
#include <tessera/training/config/config.h>
#include <tessera/training/run/training_run.h>

namespace tessera {

/// The data and settings of a run for its evaluation tasks.
EvaluationContext evaluation_context(const TrainingRun& run, const Config& config);

/// Looks whether the run's evaluation tasks fit model and data (check_task). Throws TaskMisfit where one does not, and
/// UserError where data cannot be read; if `unreadable` is given, that is no error: it gets the messages.
void check_evaluation(const TrainingRun& run, const Config& config, std::vector<std::string>* unreadable = nullptr);

}  // namespace tessera
