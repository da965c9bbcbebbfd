#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <tessera/evaluation/evaluate.h>
#include <tessera/evaluation/task.h>

/// Suites of data sets that are folders in CLIP_benchmark's layout: DataComp's 40 (configs/suites/datacomp.yaml).
namespace tessera {

/// Looks for the data sets of a suite below a folder, and adds a task for each to `suite.tasks`. Sets `suite.found`. Throws UserError if
/// none is there.
void find_data_sets(const std::string& root, SuiteSettings& suite);

/// The mean of the scores of some data sets.
struct SuiteMean {
  std::string name;             // a group of data sets, or "Average"
  std::optional<double> value;  // nullopt if no data set of the group has a score
  std::int64_t measured = 0, of = 0;
  std::vector<std::string> missing;  // names of the data sets without a score

  /// Returns the name, or "partial NAME (3 of 13)" if a score is missing.
  std::string title() const;
};

/// Returns the mean of each group, in the order in which `sets` first names them, then the mean of all data sets that have a score. Each
/// data set has the same weight. `scores` are by name; a missing or NaN score is left out.
std::vector<SuiteMean> suite_means(const std::vector<DataSetSettings>& sets, const std::map<std::string, double>& scores);

/// Writes to standard error which data sets were found, their sizes, and the time that they will take, which follows from that of some
/// images and texts. Also names the data sets that are finished.
class FinishedTasks;
void print_plan(const SuiteSettings& suite, const std::string& root, const Embedder& embedder, const EvaluationContext& context,
                const FinishedTasks& finished);

/// The results of a suite of data sets.
struct SuiteSummary {
  nlohmann::json
      json;  // {"sets": [{"name", "key", "status", "metric", "score", ...}], "means": [{"name", "value", "measured", "of", ...}]}
  TaskResult result;    // the means as metrics, with a table of the data sets
  std::string table;    // the same for the terminal
  std::string lines;    // a line of JSON for each measured data set, as DataComp's evaluator writes it
};

/// tasks[i] is the index of the task of results[i]. Sets each result's `data` to the name of its data set. Adds a failure for each folder
/// that cannot be used, and the name of its data set to the reason of each failure.
SuiteSummary summarize(const SuiteSettings& suite, const std::vector<std::size_t>& tasks, std::vector<TaskResult>& results,
                       std::vector<TaskFailure>& failures);

/// The finished tasks of an evaluation, kept in a folder until all are finished, so that an evaluation that was killed can continue.
class FinishedTasks {
 public:
  /// `origin` is what the results depend on besides the task's settings and the data files: the model and the program. If the folder has
  /// results of another origin, throws UserError, or deletes them if `overwrite` is set.
  FinishedTasks(std::string folder, const SuiteSettings& suite, nlohmann::json origin, bool overwrite);

  bool has(std::size_t task) const { return kept_.contains(task); }
  TaskResult result(std::size_t task) const;
  void keep(std::size_t task, const TaskResult& result) const;
  /// Removes the folder.
  void remove() const;

 private:
  std::string file(std::size_t task) const;
  nlohmann::json identity(std::size_t task) const;

  std::string folder_;
  const SuiteSettings& suite_;
  nlohmann::json origin_;
  std::map<std::size_t, nlohmann::json> kept_;
};

}  // namespace tessera
