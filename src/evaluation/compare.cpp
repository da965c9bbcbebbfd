#include <algorithm>
#include <filesystem>
#include <iostream>

#include "src/base/dump_utf8.h"
#include "src/evaluation/model_evaluation.h"
#include "src/foreign/open_clip.h"
#include "src/remote/local_copy.h"
#include "src/report/comparison.h"
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

std::string source_text(const std::optional<config::ModuleSettings>& source) {
  return source ? dump_utf8(config::to_json(config::Value<config::ModuleSettings>::dump(*source))) : "none";
}

std::string task_texts(const SuiteSettings& suite) {
  std::string text;
  for (const config::ModuleSettings& task : suite.tasks) text += task.name + dump_utf8(config::to_json(task.settings));
  return text;
}

/// Throws UserError unless both suites have the same tasks and data.
void check_same(const std::string& first, const SuiteSettings& one, const std::string& second,
                const SuiteSettings& other) {
  if (task_texts(one) != task_texts(other))
    user_error("--compare: the tasks in the configuration of ", second, " differ from those of ", first,
               ": give --suite FILE or --task NAME for all");
  if (source_text(one.source) != source_text(other.source))
    user_error("--compare: the validation data of ", second, ", ", source_text(other.source),
               ", differ from those of ", first, ", ", source_text(one.source), ": give --data for all");
  const bool learns = std::any_of(one.tasks.begin(), one.tasks.end(), [](const auto& task) {
    const config::Node* train = task.settings.find("train");
    return train != nullptr && train->is_null();
  });
  if (learns && source_text(one.train) != source_text(other.train))
    user_error("--compare: the training data of ", second, " differ from those of ", first,
               ": give --train-data for all");
}

EvaluateOptions options_of(const EvaluateOptions& options, const std::string& model) {
  EvaluateOptions out = options;
  out.checkpoint = model;
  out.compare.clear();
  out.out.clear();
  if (!is_open_clip_checkpoint(remote::local_copy(model))) {
    out.reading.architecture.clear();
    out.reading.state.clear();
  }
  return out;
}

/// Checks all models before the first one is evaluated.
void check_models(const EvaluateOptions& options) {
  if (!options.checkpoint.empty()) user_error("give --checkpoint, or --compare with all models, not both");
  if (options.compare.size() < 2)
    user_error("--compare ", options.compare.front(),
               ": a comparison needs at least two models: name two or more");
  std::vector<std::string> files;
  SuiteSettings first;
  for (const std::string& model : options.compare) {
    const EvaluateOptions own = options_of(options, model);
    const InferenceModel loaded = load_for_inference(model, own.device, own.reading);
    if (contains(files, loaded.path))
      user_error("--compare: ", model, " is given twice");
    files.push_back(loaded.path);
    const SuiteSettings suite = load_suite(own, run_config_of(loaded));
    if (files.size() == 1)
      first = suite;
    else
      check_same(options.compare.front(), first, model, suite);
  }
}

std::string page_path(const std::string& out) {
  const std::string path = out.empty()              ? "comparison.html"
                           : out.ends_with(".html") ? out
                                                    : (fs::path(out) / "comparison.html").string();
  const fs::path folder = fs::path(path).parent_path();
  std::error_code problem;
  if (!folder.empty()) fs::create_directories(folder, problem);
  if (problem) user_error("--out ", out, ": cannot make the folder ", folder.string(), ": ", problem.message());
  return path;
}

ModelEvaluation evaluate_or_reuse(const EvaluateOptions& options, const std::string& model) {
  try {
    return evaluate_model(options_of(options, model), /*reuse=*/!options.overwrite);
  } catch (const UserError& error) {
    user_error("--compare: ", model, ": ", error.what());
  }
}

}  // namespace

int compare_models(const EvaluateOptions& options) {
  check_models(options);
  const std::string page = page_path(options.out);
  std::vector<report::MeasuredModel> measured;
  int code = 0;
  for (const std::string& model : options.compare) {
    const ModelEvaluation evaluation = evaluate_or_reuse(options, model);
    measured.push_back(
        {evaluation.run_folder.empty() ? evaluation.model_file : evaluation.run_folder, evaluation.folder});
    std::cerr << model << ": " << evaluation.folder << "/results.json"
              << (evaluation.reused ? ", reused from an earlier evaluation (--overwrite evaluates again)" : "")
              << std::endl;
    for (const TaskFailure& failure : evaluation.failures) {
      std::cerr << "evaluate: " << model << ": task " << failure.task << " failed: " << failure.reason << std::endl;
      code = 2;
    }
  }
  const auto runs = report::read_measured_models(measured);
  io::write_file(page, report::comparison_page(runs));
  if (options.json)
    std::cout << dump_utf8(report::comparison_json(runs), 2) << std::endl;
  else
    std::cout << report::comparison_markdown(runs) << "\npage: " << page << std::endl;
  return code;
}

}  // namespace tessera
