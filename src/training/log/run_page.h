#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "src/report/run_curves.h"
#include <tessera/report/task_result.h>

namespace tessera {

/// The state of a run, as shown on its page.
struct RunStatus {
  std::string state = "running";  // "running", or how the run ended; while it is "running", the page reloads itself
  bool good = true;               // false if something went wrong
  std::string note;               // what went wrong or how to continue, shown next to the state; may be empty
  std::int64_t step = 0, total_steps = 0, samples = 0;
  double seconds = 0, seconds_left = 0;
  std::map<std::string, std::int64_t> skipped;  // number of skipped samples in this session, by reason
};

/// The page RUN/run.html, which shows the run's state, settings, curves, evaluations, checkpoints and last warnings (configs/page.html).
/// Curves are thinned, so that the page stays small for a run of any length.
class RunPage {
 public:
  /// `facts` are the settings to show, as {name, value}.
  RunPage(std::string folder, std::string title, std::vector<std::pair<std::string, std::string>> facts)
      : folder_(std::move(folder)), title_(std::move(title)), facts_(std::move(facts)) {}

  /// Clears the page and reads evaluation/step_N.json of all steps up to `step` from the folder. The caller must add the rows of
  /// metrics.jsonl.
  void resume_at(std::int64_t step);
  /// Sets Objective::chance_levels of the run, which the charts of the loss show.
  void set_chance(std::map<std::string, double> levels) { chance_ = std::move(levels); }
  void add_row(const nlohmann::json& row) { curves_.add(row); }
  /// Adds a task's result as step_N.json has it: to_json(TaskResult) with its "name". The page shows its readings at the first step, the
  /// last step, and some steps in between.
  void add_result(std::int64_t step, const nlohmann::json& result);
  /// Adds a failure of a task. `task` is a name such as "evaluation.tasks[2] (knn)". The page shows the last failure of each task.
  void add_evaluation_failure(std::int64_t step, const std::string& task, const std::string& reason) {
    failed_.insert_or_assign(task, std::pair(step, reason));
  }
  std::string html(const RunStatus& status) const;
  /// Writes the page atomically. Throws UserError.
  void write(const RunStatus& status);

 private:
  /// The value of a metric and the step at which it was measured.
  struct Measured {
    std::int64_t step;
    double value;
  };
  struct Evaluated {
    MetricRule rule;
    Measured last;
    std::optional<Measured> best;  // nullopt if neither higher nor lower values of the metric are better
  };
  static std::optional<Measured> better_of(const MetricRule& rule, const std::optional<Measured>& before, const Measured& now);
  nlohmann::json make_json(const Measured& measured) const;

  std::string folder_, title_;
  std::vector<std::pair<std::string, std::string>> facts_;
  report::RunCurves curves_;
  std::map<double, std::string> marks_;   // where the run was resumed and its settings changed, by step
  std::map<std::string, double> chance_;  // the loss of a model that guesses, by term
  std::map<std::string, Evaluated, report::NaturalOrder> evaluated_;  // key: "task.metric"
  std::map<std::string, std::string> evaluated_data_;  // key: task; value: its data, such as "shapes validation, 500 samples"
  std::map<std::string, std::pair<std::int64_t, std::string>> failed_;  // key: task; value: step and reason of its last failure
  std::map<std::string, std::map<std::int64_t, std::string>> readings_;  // keys: sample, then step
};

}  // namespace tessera
