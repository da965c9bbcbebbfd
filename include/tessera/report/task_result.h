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

/// What an evaluation task measured.
struct TaskResult {
  std::string task;                                     // registered name
  std::string data;                                     // the source's description
  config::Node settings;                                // all of them, defaults spelt out
  std::vector<std::string> classes;                     // that it asked about; empty: it asks about none
  std::vector<std::string> prompts;                     // what texts were put into, {} for the class name
  std::vector<std::pair<std::string, double>> metrics;  // in a fixed order; shares are in [0, 1]
  std::int64_t samples = 0;                             // images that it measured
  std::map<std::string, std::int64_t> skipped;          // unreadable or incomplete samples, by reason
  double seconds = 0;
  TaskPictures pictures;
  /// What single samples contribute to the metrics that are means over them, from which their intervals follow; `sample`
  /// counts the images looked at. Metrics without outcomes have no interval.
  std::vector<report::Outcomes> outcomes;
  std::uint64_t sample_mark = 0;                        // fingerprint of the samples' keys in their order
  std::map<std::string, report::Interval> intervals;  // 95 %, by metric
  /// What the model makes of single samples, for people: {sample, "red 1.21, circle 0.93"}. Of tasks that a run repeats,
  /// the same samples each time: its page shows how they change.
  std::vector<std::pair<std::string, std::string>> readings;

  std::int64_t skipped_total() const;
};

/// A task that ended without a result.
struct TaskFailure {
  std::string task;
  std::string reason;      // one line
  std::string place = {};  // "tasks[2] (knn)"
  config::Node settings = {};
};

/// {"task", "data", "metrics": {...}, "samples", "skipped": {...}, "seconds", "settings": {...}}, and "intervals": {metric:
/// [low, high]}, "classes", "prompts" and "readings": {sample: text} where there are any; pictures are left out.
nlohmann::json to_json(const TaskResult& result);

/// What samples.json keeps of a result.
report::TaskOutcomes outcomes_of(const TaskResult& result);

/// {"task", "place", "reason", "settings": {...}}.
nlohmann::json to_json(const TaskFailure& failure);

/// One line for a log: "zero_shot: top1 54.3%, top5 91.0% (1,000 images)".
std::string summary_line(const TaskResult& result);

/// Aligned columns task, data, images, metric, value for the terminal.
std::string results_table(const std::vector<TaskResult>& results);

/// A metric for people: shares as "54.31%", anything else as a plain number. What is a share follows from the metric's
/// name.
std::string format_metric(const std::string& name, double value);

/// An interval of the metric for people: "[51.2, 57.9]" of a share, in percent.
std::string format_interval(const std::string& name, const report::Interval& interval);

}  // namespace tessera
