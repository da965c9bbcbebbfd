#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tessera/config/registry.h>
#include <tessera/models/checkpoint_options.h>

namespace tessera {

class EmbeddingRanks;
class RunLoss;
struct InferenceModel;

/// One of the data sets of a suite such as DataComp's, which are folders in CLIP_benchmark's layout below one root folder.
struct DataSetSettings {
  std::string name;                    // as it is published: "ImageNet 1k"
  std::string key;                     // "vtab/caltech101"
  std::vector<std::string> folders;    // further names that its folder may have
  config::ModuleSettings task = {"zero_shot"};
  std::string metric;                  // the published name of its score; empty: it has none, and counts in no mean
  std::vector<std::string> measured = {"top1"};  // the task's metrics whose mean is the score
  std::string group;
  std::int64_t classes = 0;            // 0: it has none
  std::int64_t samples = 0;
  std::vector<std::string> npy_fields;
};

template <class Visitor>
void fields(Visitor& v, DataSetSettings& s) {
  v("name", s.name, "the data set's name in results");
  v("key", s.key, "its name in the names of folders, wds_KEY_test or wds_KEY, where each / is a -");
  v("folders", s.folders, "further names that its folder may have");
  v("task", s.task,
    "the task, without its data, classes and templates, which come from the folder; if it has a `source`, the folder "
    "is not used");
  v("metric", s.metric, "the score's published name; empty: the data set has no score and counts in no mean");
  v("measured", s.measured, "the task's metrics whose mean is the score");
  v("group", s.group, "the mean, besides that of all data sets, in which the score counts; empty: none");
  v("classes", s.classes, "its number of classes; 0: it has none", config::at_least(0));
  v("samples", s.samples, "its number of samples", config::at_least(0));
  v("npy_fields", s.npy_fields, "names for the numbers in the samples' member npy");
}

/// What was found of a data set.
struct FoundDataSet {
  DataSetSettings set;
  std::string problem;       // why its folder cannot be used; empty: it can, or it is missing
  std::int64_t classes = 0;  // the number of class names in the folder
  std::int64_t prompts = 0;  // the number of texts that describe classes
  std::optional<std::size_t> task = {};  // its index in the suite's list; nullopt: it is not measured
};

/// The contents of a suite file: a list of tasks and the data that they share, or a list of data sets.
struct SuiteSettings {
  std::vector<config::ModuleSettings> tasks;
  std::vector<DataSetSettings> sets;
  std::optional<config::ModuleSettings> source;
  std::optional<config::ModuleSettings> train;
  std::int64_t batch_size = 64;
  std::int64_t threads = 2;

  std::string name;                  // the name of the suite's file, without its ending
  std::vector<FoundDataSet> found;   // the data sets in `sets`, in the same order; load_suite() adds their tasks to `tasks`
};

template <class Visitor>
void fields(Visitor& v, SuiteSettings& s) {
  v("tasks", s.tasks, "tasks to run: [{name: zero_shot, ...}, ...]");
  v("sets", s.sets, "data sets to measure instead of tasks: folders in CLIP_benchmark's layout below the folder in --data");
  v("source", s.source, "data for tasks that do not set their own `source`; null: the run's validation data");
  v("train", s.train, "training data for tasks that do not set their own `train` (linear_probe, knn); null: the run's training data");
  v("batch_size", s.batch_size, "number of images that are embedded at a time", config::at_least(1));
  v("threads", s.threads, "number of decoding threads", config::in_range(1, config::kMostThreads));
}

/// The options of the program `evaluate`.
struct EvaluateOptions {
  std::string checkpoint;    // a model file, checkpoint folder, run folder, or OpenCLIP checkpoint
  CheckpointOptions reading;  // what the checkpoint's files do not say about it
  std::vector<std::string> compare;  // two or more checkpoints to compare, instead of `checkpoint`
  std::string suite;       // path of a YAML file that holds SuiteSettings
  std::string task;        // one task instead of a suite; if task and suite are empty, the run's configuration names the tasks
  std::vector<std::string> queries;  // search texts, whose nearest images are shown; if `suite` and `task` are empty, only the search runs
  std::string data;        // data for tasks without `source`, in the form that source_from_text() takes
  std::string train_data;  // training data for tasks without `train`
  // slots to keep (top:32, {top: 32, source: ...}, slots.json) or a slot_mask file to apply; empty: use the model unchanged
  std::string slots;
  std::string features_cache;  // folder in which evaluations share embeddings; empty: do not share
  std::vector<std::string> overrides;  // overrides such as "tasks.0.topk=[1]" for a suite, or "topk=[1]" for a single task
  /// The output folder. If it is empty, results are written into RUN/evaluation or, for a model file, into `evaluation` next to the file;
  /// if that folder already has results, into evaluation-2, -3, and so on. For a comparison, `out` names the page or its folder; if `out`
  /// is empty, the page is comparison.html.
  std::string out;
  bool overwrite = false;  // overwrite the results of an earlier evaluation
  std::string command;     // command line of the program, for results.json
  std::string device = "auto";
  // threads for operators and for decoding; nullopt: one per core for operators, and the suite's number for decoding
  std::optional<std::int64_t> threads;
  int processes = 1;  // number of processes that embed images and texts; the program starts them
  const EmbeddingRanks* ranks = nullptr;  // the other processes; null if there are none
  bool json = false;  // print the results as JSON instead of the table
  bool images = true;
  /// A function that makes the loss of the loaded model, for the task validation_loss. If the function is empty or returns null, that task
  /// fails with a message. The caller passes it in because objectives belong to the training library, which depends on this library.
  std::function<std::shared_ptr<const RunLoss>(const InferenceModel&)> run_loss;
};

/// Makes source settings from an option's text. The text can be a source's name ("shapes", with its defaults), settings ("{name: shapes,
/// split: test}"), or a path. A tar file (compressed or not) or a folder of tar files is read by the source webdataset, a folder of class
/// folders by the source image_folder; for a table, the settings are those from csv_settings_of(). `option` is the option's name, for
/// messages. Throws UserError.
config::ModuleSettings source_from_text(const std::string& text, const std::string& option);

/// Throws UserError if source_from_text() rejects --data or --train-data.
void check_data_options(const EvaluateOptions& options);

/// Returns the settings of the source at a dotted path ("data.validation") in a run's resolved configuration; nullopt if there is no such
/// source.
std::optional<config::ModuleSettings> run_source(const config::Node& run_config, const std::string& path);

/// Reads the suite, or makes one from a single task. Then applies the overrides and checks all names and keys. `run_config` is the resolved
/// configuration of the model's run, or null if it is unknown. Throws UserError.
SuiteSettings load_suite(const EvaluateOptions& options, const config::Node& run_config);

/// Returns the folder for the results, which is `out` if that option is set, otherwise `usual`. If `usual` already has results and
/// `overwrite` is false, returns the first of `usual`-2, `usual`-3, ... that has no results. Throws UserError if `out` already has results
/// and `overwrite` is false.
std::string output_folder(const EvaluateOptions& options, const std::string& usual);

/// Runs the whole program: loads the model, runs the tasks, prints the table, and writes results.json, samples.json and
/// report.html into the folder. In a comparison each model has its own folder, and one page compares them. Returns the exit code,
/// which is 2 if a task failed; results.json and report.html then contain the reason, and the other tasks still run. Throws
/// UserError and writes nothing if no task fits its data.
int evaluate(const EvaluateOptions& options);

}  // namespace tessera
