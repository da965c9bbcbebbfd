#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <tessera/config/node.h>
#include <tessera/report/bootstrap.h>
#include <tessera/report/task_outcomes.h>

namespace tessera {

/// What the values of a metric mean.
struct MetricRule {
  enum class Better { higher, lower, neither };
  bool percent = false;             // whether the metric is a share in [0, 1], which is shown in percent
  Better better = Better::neither;  // neither: the metric only describes the model or the data
  bool operator==(const MetricRule&) const = default;
};

/// Returns the rule of a metric of which only the name is known: a metric in a file of an older version, or one that has not been measured
/// yet.
MetricRule usual_rule(const std::string& metric);

/// Returns {"better": "higher", "percent": true}.
nlohmann::json to_json(const MetricRule& rule);

/// Returns the rule of a metric in the JSON of a result, or its usual rule if the JSON does not state one.
MetricRule rule_in(const nlohmann::json& result, const std::string& metric);

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
  std::string rule;                                     // says in sentences how the metrics are computed
  std::map<std::string, MetricRule> rules;              // what the metrics' values mean, keyed by metric
  /// The examples and charts that the report shows for the task, as JSON objects. Each has a "type" (image, overlay, bars, curve, table or
  /// text) and may have a "title" and a "note"; src/report/cards.h makes them. The page template configs/page.html draws them.
  std::vector<std::shared_ptr<const nlohmann::json>> cards;
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
  /// Adds a metric that is a share in [0, 1] and shown in percent.
  void add_share(const std::string& name, double value, MetricRule::Better better = MetricRule::Better::higher);
  /// Adds a metric that is not a share.
  void add_number(const std::string& name, double value, MetricRule::Better better = MetricRule::Better::neither);
  void add_card(const nlohmann::json& card);
  /// Returns what the metric's values mean; its usual rule if `rules` does not say it.
  MetricRule rule_of(const std::string& metric) const;
};

/// A task that failed.
struct TaskFailure {
  std::string task;
  std::string reason;      // the reason in one line
  std::string place = {};  // position in the list of tasks, such as "tasks[2] (knn)"
  config::Node settings = {};
};

/// Returns {"task", "data", "metrics": {...}, "rules": {metric: {"better", "percent"}}, "samples", "skipped": {...}, "seconds", "settings":
/// {...}}, where "samples" is the number of images. The keys "rule", "texts", "equal_images", "intervals": {metric: [low, high]},
/// "classes", "prompts", "chance", "notes" and "readings": {sample: text or [{"name", "score"}]} are added if the result has them. This is
/// the only spelling of a result: in the files of a run, of `evaluate`, and in pages. Cards are left out, because they hold images.
nlohmann::json to_json(const TaskResult& result);

/// Returns the outcomes of a result for samples.json.
report::TaskOutcomes make_outcomes(const TaskResult& result);

/// Returns {"task", "place", "reason", "settings": {...}}.
nlohmann::json to_json(const TaskFailure& failure);

/// Returns a result's data with its numbers of images and texts, unless the description of the data already has them: "csv a.csv, 200
/// samples, 40 images, 200 texts". `texts` is 0 if the result has none.
std::string data_and_counts(const std::string& data, std::int64_t images, std::int64_t texts);

/// Returns one line for a log, such as "zero_shot: top1 54.3%, top5 91.0% (1,000 images)" or "... (1,000 images, 5,000 texts)".
std::string summary_line(const TaskResult& result);

/// Returns a table for the terminal with the columns task, data, images, texts (if a result has any), metric and value.
std::string results_table(const std::vector<TaskResult>& results);

/// Formats a value of a metric: a share as "54.31%", anything else as a plain number.
std::string format_metric(const MetricRule& rule, double value);

/// Formats an interval of a metric, such as "[51.2, 57.9]", in percent if the metric is a share.
std::string format_interval(const MetricRule& rule, const report::Interval& interval);

/// Returns the results in a file of an evaluation (results.json, or a run's step_N.json, whose list older versions called "results"). The
/// array is empty if there are none.
nlohmann::json results_in(const nlohmann::json& file);

/// Returns the line of a reading in the JSON of a result.
std::string reading_line(const nlohmann::json& reading);

}  // namespace tessera
