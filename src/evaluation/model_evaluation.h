#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <tessera/evaluation/evaluate.h>
#include <tessera/evaluation/inference.h>
#include <tessera/report/task_result.h>

namespace tessera {

/// The finished evaluation of one model.
struct ModelEvaluation {
  std::string folder;  // the folder that contains results.json
  std::string model_file;
  std::string run_folder;  // empty if the model file belongs to no run
  bool reused = false;     // true if the results are from an earlier evaluation
  nlohmann::json json;     // content of results.json
  std::string table;       // table of the results for the terminal
  std::vector<TaskFailure> failures;
};

/// Returns the folder of the run that wrote a model file. This is the nearest parent folder with a metrics.jsonl. Returns an empty
/// string if the file belongs to no run.
std::string run_folder_of(const std::string& model_file);

/// Returns the resolved configuration stored in the checkpoint, or an empty map if the checkpoint has none.
config::Node run_config_of(const InferenceModel& loaded);

/// Evaluates `options.checkpoint` and writes the files. With `reuse`, returns the results of an earlier evaluation with the same
/// model and settings, if there is one (earlier_results()). Throws UserError like evaluate().
ModelEvaluation evaluate_model(const EvaluateOptions& options, bool reuse);

/// Evaluates each model in `options.compare` on the same suite. Prints a table and writes a page that compare the models. Returns
/// the exit code. Throws UserError.
int compare_models(const EvaluateOptions& options);

}  // namespace tessera
