#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/training/run/training_run.h"
#include <tessera/evaluation/task.h>
#include <tessera/training/config/config.h>

namespace tessera {

/// Returns the data, settings and loss that a run's evaluation tasks need when the run has made `step` updates.
EvaluationContext evaluation_context(const TrainingRun& run, const Config& config, std::int64_t step = 0);

/// Returns the error message for a checkpoint.keep_best.metric that is not among the measured metrics `names`.
std::string not_measured(const std::string& metric, const std::vector<std::string>& names);

/// A task that was not checked, and why. `place` is like "evaluation.tasks[1] (knn)".
struct UnreadTask {
  std::string place, reason;
};

/// Checks that the run's evaluation tasks fit the model and the data (check_task). Where the tasks' metrics are known in advance,
/// also checks that the metric of checkpoint.keep_best is among them. Throws TaskMisfit if a task does not fit, and UserError if
/// the metric is not measured or data cannot be read. If `unreadable` is given (see build_training_run), unreadable data is not an
/// error. Returns the tasks whose data or vocabulary cannot be read.
std::vector<UnreadTask> check_evaluation(const TrainingRun& run, const Config& config,
                                         const Unreadable* unreadable = nullptr);

}  // namespace tessera
