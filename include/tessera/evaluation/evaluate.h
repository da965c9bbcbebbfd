#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tessera/config/registry.h>

namespace tessera {

class EmbeddingRanks;
class RunLoss;
struct InferenceModel;

/// The contents of a suite file: a list of tasks and the data they share.
struct SuiteSettings {
  std::vector<config::ModuleSettings> tasks;
  std::optional<config::ModuleSettings> source;
  std::optional<config::ModuleSettings> train;
  std::int64_t batch_size = 64;
  std::int64_t threads = 2;
};

template <class Visitor>
void fields(Visitor& v, SuiteSettings& s) {
  v("tasks", s.tasks, "tasks to run: [{name: zero_shot, ...}, ...]");
  v("source", s.source, "data of tasks that set no `source` of their own; null: the run's validation data");
  v("train", s.train, "training data of tasks that set no `train` of their own (linear_probe, knn); null: the run's");
  v("batch_size", s.batch_size, "images at a time", config::at_least(1));
  v("threads", s.threads, "decoding threads", config::at_least(1));
}

/// The options of the program `evaluate`.
struct EvaluateOptions {
  std::string checkpoint;    // model file, checkpoint folder, run folder, or OpenCLIP checkpoint
  std::string architecture;  // OpenCLIP's name of the model, for a checkpoint without open_clip_config.json
  std::vector<std::string> compare;  // two or more of these, in place of `checkpoint`
  std::string suite;       // YAML file of SuiteSettings
  std::string task;        // one task instead of a suite; if both are empty, the tasks of the run's own configuration
  std::vector<std::string> queries;  // texts whose nearest images are shown; without `suite` and `task`, only these run
  std::string data;        // source of tasks that set none: see source_from_text
  std::string train_data;  // the same for `train`
  std::string slots;  // top:32, {top: 32, source: ...}, slots.json or a mask of slot_mask; empty: the unchanged model
  std::string features_cache;  // folder in which evaluations share embeddings; empty: none
  std::vector<std::string> overrides;  // "tasks.0.topk=[1]" for a suite, "topk=[1]" for one task or for queries only
  std::string out;         // folder; empty: RUN/evaluation, or evaluation next to the model file, or evaluation-2, -3, ...
                           // For a comparison: the page or its folder; empty: comparison.html
  bool overwrite = false;  // overwrite the results of an earlier evaluation
  std::string command;     // the program's command line, for results.json
  std::string device = "auto";
  std::optional<std::int64_t> threads;  // for operators and for decoding; none: one per core, and the suite's for decoding
  int processes = 1;  // that share the embedding; the program starts them
  const EmbeddingRanks* ranks = nullptr;  // the other processes, if there are any
  bool json = false;  // print the results as JSON instead of the table
  bool pictures = true;
  /// Makes the loss of the loaded model that validation_loss measures. If it is empty or returns null, the task fails with a
  /// message. It is a function because objectives belong to the training library, which depends on this one.
  std::function<std::shared_ptr<const RunLoss>(const InferenceModel&)> run_loss;
};

/// Makes source settings from one word: a source's name ("shapes", with its defaults), settings ("{name: shapes, split:
/// test}"), or a path to a tar file, compressed or not, or a folder of them (webdataset), to a table (csv_settings_of), or to
/// a folder of class folders (image_folder). `option` is the option's name for messages. Throws UserError.
config::ModuleSettings source_from_text(const std::string& text, const std::string& option);

/// Throws UserError for a --data or --train-data that source_from_text() rejects.
void check_data_options(const EvaluateOptions& options);

/// Returns the source at a dotted path ("data.validation") of a run's resolved configuration, if there is one.
std::optional<config::ModuleSettings> run_source(const config::Node& run_config, const std::string& path);

/// Reads the suite, or makes one from a single task, applies the overrides, and checks every name and key. `run_config` is
/// the resolved configuration of the model's run, or null if unknown. Throws UserError.
SuiteSettings load_suite(const EvaluateOptions& options, const config::Node& run_config);

/// Returns the folder for the results: `out` if it is set, otherwise the first of FOLDER, FOLDER-2, FOLDER-3 and so on that
/// holds no results yet, where FOLDER is `usual`. Throws UserError if `out` holds results and `overwrite` is false.
std::string output_folder(const EvaluateOptions& options, const std::string& usual);

/// Runs the whole program: loads the model, runs the tasks, prints the table, and writes results.json, samples.json and
/// report.html into the folder. In a comparison each model has its own folder, and one page compares them. Returns the exit
/// code, which is 2 if a task failed; both files then hold the reason, and the other tasks still run. Throws UserError and
/// writes nothing if no task fits its data.
int evaluate(const EvaluateOptions& options);

}  // namespace tessera
