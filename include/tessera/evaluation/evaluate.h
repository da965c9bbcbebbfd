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

/// A list of tasks with the data they share: what a suite file holds.
struct SuiteSettings {
  std::vector<config::ModuleSettings> tasks;
  std::optional<config::ModuleSettings> source;
  std::optional<config::ModuleSettings> train;
  std::int64_t batch_size = 64;
  std::int64_t threads = 2;
};

template <class Visitor>
void fields(Visitor& v, SuiteSettings& s) {
  v("tasks", s.tasks, "what is measured: [{name: zero_shot, ...}, ...]");
  v("source", s.source, "data of tasks that name none of their own; null: the run's validation data");
  v("train", s.train, "training data of tasks that name none of their own (linear_probe, knn); null: the run's");
  v("batch_size", s.batch_size, "images at a time", config::at_least(1));
  v("threads", s.threads, "decoding threads", config::at_least(1));
}

/// What the program `evaluate` is told.
struct EvaluateOptions {
  std::string checkpoint;    // model file, checkpoint folder or run folder, or a checkpoint of OpenCLIP's
  std::string architecture;  // of OpenCLIP's, where no open_clip_config.json says it
  std::vector<std::string> compare;  // two or more of these, in place of `checkpoint`
  std::string suite;       // YAML file of SuiteSettings; or
  std::string task;        // one task; neither: the tasks of the run's own configuration
  std::vector<std::string> queries;  // texts whose nearest pictures are shown, beside the tasks; alone: nothing else
  std::string data;        // source of the tasks that name none: see source_from_text
  std::string train_data;  // the same for `train`
  std::string slots;  // top:32, {top: 32, source: ...}, slots.json or a mask of slot_mask; empty: the model as it is
  std::string features_cache;  // folder that embeddings are kept in from one evaluation to the next; empty: none
  std::vector<std::string> overrides;  // "tasks.0.topk=[1]" in a suite, "topk=[1]" of one task, or of the queries alone
  std::string out;         // folder; empty: RUN/evaluation, or evaluation beside the model file, or evaluation-2, -3, ...
                           // Of a comparison: the page, or a folder for it; empty: comparison.html
  bool overwrite = false;  // write over an earlier evaluation's results
  std::string command;     // the program's command line, for results.json
  std::string device = "auto";
  std::optional<std::int64_t> threads;  // of operators and of decoding; none: one per core, and those of the suite
  int processes = 1;  // started by the program, to embed in shares
  const EmbeddingRanks* ranks = nullptr;  // the other processes, where there are some
  bool json = false;  // results as JSON on standard output instead of the table
  bool pictures = true;
  /// Makes the loss that validation_loss measures, of the model that is loaded; empty, or null: the task fails and says
  /// so. A function, for objectives belong to training, which knows evaluation.
  std::function<std::shared_ptr<const RunLoss>(const InferenceModel&)> run_loss;
};

/// A source out of one word: a source's name ("shapes", with its defaults), settings ("{name: shapes, split: test}"),
/// or a path: a tar file, compressed or not, or a folder of them (webdataset), a table (csv_settings_of), or a folder of
/// class folders (image_folder). `option` is what messages call it. Throws UserError.
config::ModuleSettings source_from_text(const std::string& text, const std::string& option);

/// Throws UserError for a --data or --train-data that source_from_text refuses.
void check_data_options(const EvaluateOptions& options);

/// The source that a run's resolved configuration names at a dotted path ("data.validation"), if any.
std::optional<config::ModuleSettings> run_source(const config::Node& run_config, const std::string& path);

/// Reads the suite or makes one of one task, lays the overrides on it, and checks every name and key. `run_config` is
/// the resolved configuration of the model's run, null if unknown. Throws UserError.
SuiteSettings load_suite(const EvaluateOptions& options, const config::Node& run_config);

/// The folder that results go into: `out` as it is given, or the first of FOLDER, FOLDER-2, FOLDER-3 and so on that holds no
/// results yet, FOLDER being `usual`. Throws UserError if `out` holds some and `overwrite` is not given.
std::string output_folder(const EvaluateOptions& options, const std::string& usual);

/// The whole program: loads, runs, prints, and writes results.json, samples.json and report.html into the folder. Of a
/// comparison each model has its own folder, beside which the page of all is written. Returns the exit
/// code: 2 if a task failed, whose reason is then in both files; the others run all the same. Throws UserError if no task
/// fits its data, and then writes nothing.
int evaluate(const EvaluateOptions& options);

}  // namespace tessera
