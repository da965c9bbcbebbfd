#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "src/report/compared_run.h"

namespace tessera::report {

/// The difference of a metric between two runs on the same samples.
struct Difference {
  std::size_t first = 0, second = 0;  // indices of the two runs
  double value = 0;                   // first - second
  Interval interval;                  // 95 % interval, by a paired bootstrap over the samples

  bool beyond_chance() const { return interval.low > 0 || interval.high < 0; }
};

/// One metric of one task on the same data, with a value for each run.
struct ScoreRow {
  std::string task, data, metric;
  MetricRule meaning;
  std::vector<std::optional<double>> values;  // one per run; nullopt if the run was not measured
  // one per run: whether its value is the row's best. No value is best if all values are equal, or if they were measured with weights of
  // different steps. NaN is never best
  std::vector<bool> best;
  std::vector<std::optional<Interval>> intervals = {};                // one per run; nullopt if the run's value has no interval
  std::vector<std::shared_ptr<const TaskOutcomes>> outcomes = {};  // one per run
  std::vector<Difference> differences = {};  // one for each pair of runs with known outcomes on the same samples
  std::string rule = {};  // a text on how the values are computed; empty if the runs' settings lead to different texts
  std::vector<std::optional<std::int64_t>> steps = {};  // one per run: the step of the measured weights; nullopt if unknown or not measured
};

/// Returns true if a run's value is not the best in its row but does not differ significantly from the best.
bool is_like_best(const ScoreRow& row, std::size_t run);

/// One setting, with a value for each run that has it.
struct SettingRow {
  std::string key;
  std::vector<std::optional<std::string>> values;
};

/// Returns one row per task, data and metric, with the values of all runs. The rows of a task stay together.
std::vector<ScoreRow> score_rows(const std::vector<ComparedRun>& runs);

/// Returns the same rows without `best` and `differences`.
std::vector<ScoreRow> unjudged_rows(const std::vector<ComparedRun>& runs);

/// Computes the bootstrap values of each task once and keeps them.
class Resamples {
 public:
  /// Returns the metric's value in each resample. Returns null if the task has no outcomes of the metric.
  const std::vector<double>* of(const std::shared_ptr<const TaskOutcomes>& outcomes, const std::string& metric);

 private:
  std::map<const TaskOutcomes*, std::vector<std::vector<double>>> values_;
};

/// Whether two runs of a row were measured on the same samples, sample by sample.
bool same_samples(const ScoreRow& row, std::size_t first, std::size_t second);

/// Whether the values of a row belong to weights from different steps; then no value is marked as the best.
bool steps_differ(const ScoreRow& row);

/// Returns a note on why nothing is bold in rows whose steps differ; empty if there are no such rows.
std::string note_on_steps(const std::vector<ScoreRow>& rows);

/// Returns "47 of 60 steps", or "-" if unknown.
std::string step_text(const ComparedRun& run);

/// Returns "finished" or "not finished", or "-" if unknown.
std::string state_text(const ComparedRun& run);

/// Returns the settings that differ between the runs, in the order of the configuration. Leaves out runs without a configuration.
std::vector<SettingRow> differing_settings(const std::vector<ComparedRun>& runs);

/// Returns the score of a run, such as "54.31%", or "-" if it has none.
std::string score_text(const ScoreRow& row, std::size_t run);

/// Returns the scores and the settings that differ as Markdown tables; the best score of a row is bold.
std::string comparison_markdown(const std::vector<ComparedRun>& runs);

/// Returns the comparison in full precision: {"runs": [...], "scores": [...], "settings": [...]}.
nlohmann::json comparison_json(const std::vector<ComparedRun>& runs);

/// Returns a self-contained HTML page: the runs, their scores side by side, the settings that differ, and overlaid curves.
std::string comparison_page(const std::vector<ComparedRun>& runs);

}  // namespace tessera::report
