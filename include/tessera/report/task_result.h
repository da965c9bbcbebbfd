#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <tessera/config/node.h>
#include <tessera/report/bootstrap.h>
#include <tessera/report/task_outcomes.h>
#include <tessera/report/task_pictures.h>

namespace tessera {

/// A readable output of the model for one sample or text: a text, or names with numbers, such as the words of an image and their weights.
struct Reading {
  std::string of;  // the sample's key, or the text
  std::string text = {};
  std::vector<std::pair<std::string, double>> items = {};  // instead of `text`; best first

  /// Returns the text, or the items as "red 1.210, circle 0.930".
  std::string line() const;
  bool operator==(const Reading&) const = default;
};

/// The result of an evaluation task.
struct TaskResult {
  std::string task;                                     // the task's registered name
  std::string data;                                     // the source's description
  config::Node settings;                                // all settings, including defaults
  std::vector<std::string> classes;                     // the classes of the task; empty if it has none
  std::vector<std::string> prompts;                     // the texts used, or templates with {} for the class name
  std::vector<std::pair<std::string, double>> metrics;  // names and values in a fixed order; values that are shares are in [0, 1]
  std::int64_t samples = 0;                             // number of images measured
  std::int64_t texts = 0;                               // number of texts that images are compared with; 0: none of the data's texts
  std::int64_t equal_images = 0;                        // number of these images that have the same bytes as an earlier one
  std::map<std::string, std::int64_t> skipped;          // unreadable or incomplete samples, by reason
  double seconds = 0;
  TaskPictures pictures;
  /// The contributions of single samples to metrics, from which intervals are computed. `sample` is the index among the measured images.
  /// Metrics without outcomes have no interval.
  std::vector<report::Outcomes> outcomes;
  std::uint64_t sample_mark = 0;                        // fingerprint of the samples' keys and their order
  std::map<std::string, report::Interval> intervals;  // 95 % intervals, keyed by metric
  /// Outputs of the model for single samples. The evaluations of a run use the same samples each time, so that the run's page shows how
  /// the outputs change.
  std::vector<Reading> readings;
  std::map<std::string, double> chance;  // for some metrics, the value of a model that guesses
  std::vector<std::string> notes;        // what the log and the report say about how the task was measured, in lines
  std::vector<std::string> warnings;     // those of the notes that the log gives as warnings

  std::int64_t skipped_total() const;
};

/// A task that failed.
struct TaskFailure {
  std::string task;
  std::string reason;      // the reason in one line
  std::string place = {};  // position in the list of tasks, such as "tasks[2] (knn)"
  config::Node settings = {};
};

/// Returns {"task", "data", "metrics": {...}, "samples", "skipped": {...}, "seconds", "settings": {...}}, where "samples" is the number of
/// images. The keys "texts", "equal_images", "intervals": {metric: [low, high]}, "classes", "prompts", "chance", "notes" and "readings":
/// {sample: text or [{"name", "score"}]} are added if the result has them. Images are left out.
nlohmann::json to_json(const TaskResult& result);

/// Returns the outcomes of a result for samples.json.
report::TaskOutcomes outcomes_of(const TaskResult& result);

/// Returns {"task", "place", "reason", "settings": {...}}.
nlohmann::json to_json(const TaskFailure& failure);

/// Returns a result's data with its numbers of images and texts, unless the description of the data already has them: "csv a.csv, 200
/// samples, 40 images, 200 texts". `texts` is 0 if the result has none.
std::string data_and_counts(const std::string& data, std::int64_t images, std::int64_t texts);

/// Returns one line for a log, such as "zero_shot: top1 54.3%, top5 91.0% (1,000 images)" or "... (1,000 images, 5,000 texts)".
std::string summary_line(const TaskResult& result);

/// Returns a table for the terminal with the columns task, data, images, texts (if a result has any), metric and value.
std::string results_table(const std::vector<TaskResult>& results);

/// Formats a metric: a share as "54.31%", anything else as a plain number. The metric's name determines whether it is a share.
std::string format_metric(const std::string& name, double value);

/// Formats an interval of the metric, such as "[51.2, 57.9]", in percent if the metric is a share.
std::string format_interval(const std::string& name, const report::Interval& interval);

}  // namespace tessera
