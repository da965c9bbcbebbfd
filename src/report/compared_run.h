#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/report/run_curves.h"
#include <tessera/report/task_outcomes.h>
#include <tessera/report/task_result.h>

namespace tessera::report {

/// One number of an evaluation.
struct Score {
  std::string task;    // the task's name; a second task of the same name on the same data is "zero_shot (2)"
  std::string data;    // description of the data source
  std::string metric;  // for example "top1"
  double value = 0;    // NaN if the evaluation could not compute it
  std::optional<Interval> interval = {};  // 95 % interval
  /// The task's outcomes, for significance tests between runs. Null if there is no samples.json in the folder of results.json.
  std::shared_ptr<const TaskOutcomes> outcomes = {};
  std::string rule = {};                  // explains how the task computes the number with its settings
  std::optional<std::int64_t> step = {};  // step of the measured weights, if known
  MetricRule meaning = usual_rule(metric);  // what the value means
  bool evaluated = false;                 // whether `evaluate` measured it, not an evaluation during training
  std::string curve = {};                 // the task's name in the run's log, where a second zero_shot is "zero_shot_2" on any data
};

/// What a comparison knows about one training run or one evaluation.
struct ComparedRun {
  std::string name;                  // the folder's name, with as many parent folders as needed to make it unique
  std::string folder;                // the folder as the user named it
  std::string version;               // the version that trained the run, such as "Tessera 0.1.0 (c35a622)"; empty if unknown
  std::optional<std::int64_t> step;  // step of the newest numbers or checkpoint
  // Curves over steps. Evaluations during training are named "evaluation.TASK.METRIC". Instead of steps, "loss_by_minutes" has minutes, and
  // "loss_by_samples" the number of samples seen by all ranks.
  RunCurves curves;
  std::set<std::string> percent{};                            // the "TASK.METRIC" of these curves that are shares
  std::vector<Score> scores;                                  // the newest score for each metric
  std::vector<std::pair<std::string, std::string>> settings;  // from config.yaml: {"optimizer.lr", "0.001"}
  // These fields describe the training or, if there was none, the evaluation; empty if unknown.
  std::string device{};
  std::string date{};        // date of the last row, such as "2026-11-23 14:39:30 UTC"
  std::string parameters{};  // "1,314: image tower 1,024, text tower 290"

  /// Returns a setting of config.yaml, or null if the run does not have it.
  const std::string* setting(const std::string& key) const;
};

/// Reads run folders (metrics.jsonl, config.yaml, evaluation/step_N.json and the output of `evaluate` in evaluation/), and
/// folders with the results.json of `evaluate`. Throws UserError for a folder that is neither, for one that is given twice, and
/// for a file that cannot be read.
std::vector<ComparedRun> read_compared_runs(const std::vector<std::string>& folders);

/// A model and the folder of one evaluation of it.
struct MeasuredModel {
  std::string model;    // run folder, or a model file outside of a run
  std::string results;  // folder with results.json
};

/// Reads models to compare. Their numbers come only from the given evaluations, which may belong to any step; their curves and settings
/// come from the models' runs.
std::vector<ComparedRun> read_measured_models(const std::vector<MeasuredModel>& models);

}  // namespace tessera::report
