#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tessera/report/run_curves.h>
#include <tessera/report/task_outcomes.h>
#include <tessera/report/thin_curve.h>

namespace tessera::report {

/// One number of an evaluation.
struct Score {
  std::string task;    // of tasks that come twice on the same data, the second is "zero_shot (2)"
  std::string data;    // the source's description
  std::string metric;  // "top1"
  double value = 0;    // NaN where the evaluation had no number
  std::optional<Interval> interval = {};  // 95 %
  /// Of the task, where samples.json lies beside the numbers: what differences between runs are judged by.
  std::shared_ptr<const TaskOutcomes> outcomes = {};
  std::string rule = {};                  // what the number says, by the task's settings
  std::optional<std::int64_t> step = {};  // of the weights that were measured, where the evaluation tells
};

/// What the folder of a training run, or of an evaluation, holds for a comparison.
struct ComparedRun {
  std::string name;                  // the folder's, with as many of those around it as tell it from the others
  std::string folder;                // as given
  std::string version;               // what trained it, "Tessera 0.1.0 (c35a622)"; empty if the folder does not tell
  std::optional<std::int64_t> step;  // of the newest numbers or checkpoint
  RunCurves curves;                  // over steps; evaluations during training under "evaluation.TASK.METRIC"
  ThinCurve loss_by_minutes{};
  ThinCurve loss_by_samples{};                                // seen by all ranks
  std::vector<Score> scores;                                  // the last of each
  std::vector<std::pair<std::string, std::string>> settings;  // of config.yaml: {"optimizer.lr", "0.001"}
  // Of the training, else of the evaluation; empty where the folder does not tell.
  std::string device{};
  std::string date{};        // of the last row, "2026-11-23 14:39:30 UTC"
  std::string parameters{};  // "1,314: image tower 1,024, text tower 290"

  /// Of config.yaml; null: the run has no such setting.
  const std::string* setting(const std::string& key) const;
};

/// Reads run folders (metrics.jsonl, config.yaml, evaluation/step_N.json and what `evaluate` wrote to evaluation/), and folders
/// with the results.json of `evaluate`. Throws UserError for a folder that is neither, for one that is given twice, and for a
/// file that cannot be read.
std::vector<ComparedRun> read_compared_runs(const std::vector<std::string>& folders);

/// A model with one evaluation of it.
struct MeasuredModel {
  std::string model;    // run folder, or model file of no run
  std::string results;  // folder with results.json
};

/// The same of models with the numbers of these evaluations alone, whatever step they are of; curves and settings are those
/// of their runs.
std::vector<ComparedRun> read_measured_models(const std::vector<MeasuredModel>& models);

}  // namespace tessera::report
