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

/// The line for a checkpoint.keep_best.metric that is none of these.
std::string not_measured(const std::string& metric, const std::vector<std::string>& names);

/// A task that was not looked at, and why: "evaluation.tasks[1] (knn)".
struct UnreadTask {
  std::string place, reason;
};

/// Looks whether the run's evaluation tasks fit model and data (check_task), and give the metric of checkpoint.keep_best
/// where that can be told. Throws TaskMisfit where one does not, UserError for such a metric and where data cannot be
/// read; of data, if `unreadable` is given (build_training_run), that is no error: returns the tasks
/// whose data or vocabulary cannot be read.
std::vector<UnreadTask> check_evaluation(const TrainingRun& run, const Config& config,
                                         const Unreadable* unreadable = nullptr);

}  // namespace tessera
