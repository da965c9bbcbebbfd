#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <tessera/report/compared_run.h>
#include <tessera/report/metric.h>

namespace tessera::report {

/// How much greater a metric is of one run than of another, on the same samples.
struct Difference {
  std::size_t first = 0, second = 0;  // runs
  double value = 0;                   // first - second
  Interval interval;                  // 95 %, of the difference by a bootstrap over the samples of both

  bool beyond_chance() const { return interval.low > 0 || interval.high < 0; }
};

/// One metric of one task on the same data, run by run.
struct ScoreRow {
  std::string task, data, metric;
  Better better = Better::neither;
  std::vector<std::optional<double>> values;  // none: the run was not measured so
  std::vector<bool> best;                     // the best of those that differ; NaN never is, nor any of different steps
  std::vector<std::optional<Interval>> intervals = {};                // run by run; none: the run has none
  std::vector<std::shared_ptr<const TaskOutcomes>> outcomes = {};  // run by run
  std::vector<Difference> differences = {};  // of each two runs whose outcomes on the same samples are known
  std::string rule = {};                                // what the numbers say; empty where the runs' settings differ in it
  std::vector<std::optional<std::int64_t>> steps = {};  // that were measured; none: not known, or not measured
};

/// Whether a run's value, which is not the best, differs from the best one by no more than chance.
bool is_like_best(const ScoreRow& row, std::size_t run);

/// One setting, run by run; none: the run has no such setting.
struct SettingRow {
  std::string key;
  std::vector<std::optional<std::string>> values;
};

std::vector<ScoreRow> score_rows(const std::vector<ComparedRun>& runs);

/// Whether the values of a row are of weights after different numbers of steps, so that none is called the best.
bool steps_differ(const ScoreRow& row);

/// Of a run's values in the rows; several where some were measured again later.
std::set<std::int64_t> steps_measured(const std::vector<ScoreRow>& rows, std::size_t run);

/// Why nothing is bold where steps differ; empty where they nowhere do.
std::string note_on_steps(const std::vector<ScoreRow>& rows);

/// Takes the tasks that one of several runs alone has out of the rows. Returns a line for each such run: "only a: retrieval (d)".
std::vector<std::string> take_lone_tasks(const std::vector<ComparedRun>& runs, std::vector<ScoreRow>& rows);

/// "47 of 60 steps"; "-" where none are known.
std::string step_text(const ComparedRun& run);

/// "finished", "not finished"; "-" where that is not known.
std::string state_text(const ComparedRun& run);

/// The settings in which the runs that have a configuration differ, in the order of the configuration.
std::vector<SettingRow> differing_settings(const std::vector<ComparedRun>& runs);

/// "54.31%"; "-" without a value.
std::string score_text(const ScoreRow& row, std::size_t run);

/// "[52.1, 56.5]"; empty without an interval.
std::string interval_text(const ScoreRow& row, std::size_t run);

/// The scores, and the settings that differ, as Markdown tables; the best score of a row is bold.
std::string comparison_markdown(const std::vector<ComparedRun>& runs);

/// {"runs": [...], "scores": [...], "settings": [...]}: the same in full precision.
nlohmann::json comparison_json(const std::vector<ComparedRun>& runs);

/// One self-contained HTML page: the runs, their scores side by side, the settings that differ, and their curves over each other.
std::string comparison_page(const std::vector<ComparedRun>& runs);

}  // namespace tessera::report
