#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <tessera/evaluation/evaluate.h>
#include <tessera/evaluation/inference.h>
#include <tessera/report/task_result.h>

namespace tessera {

/// One model's evaluation, whose files are written.
struct ModelEvaluation {
  std::string folder;  // of results.json
  std::string model_file;
  std::string run_folder;  // empty: the file belongs to no run
  bool reused = false;     // these are earlier results
  nlohmann::json json;     // results.json
  std::string table;       // for the terminal
  std::vector<TaskFailure> failures;
};

/// The folder with the run's metrics.jsonl above a model file; empty for a file that belongs to no run.
std::string run_folder_of(const std::string& model_file);

/// The resolved configuration that the checkpoint carries, or an empty map.
config::Node run_config_of(const InferenceModel& loaded);

/// Measures `options.checkpoint` and writes the files. `reuse`: takes earlier results of the same model and settings
/// where there are some (earlier_results()). Throws UserError as evaluate() does.
ModelEvaluation evaluate_model(const EvaluateOptions& options, bool reuse);

/// `options.compare`: measures each model on the same suite, prints their table and writes their page. Returns the exit
/// code. Throws UserError.
int compare_models(const EvaluateOptions& options);

}  // namespace tessera
