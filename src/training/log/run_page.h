#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

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
  RunPage(std::string folder, std::string title, std::vector<std::pair<std::string, std::string>> facts);
  ~RunPage();

  /// Clears the page and reads evaluation/step_N.json of all steps up to `step` from the folder. The caller must add the rows of
  /// metrics.jsonl.
  void resume_at(std::int64_t step);
  /// Sets Objective::chance_levels of the run, which the charts of the loss show.
  void set_chance(std::map<std::string, double> levels);
  void add_row(const nlohmann::json& row);
  /// Adds a task's result as step_N.json has it: to_json(TaskResult) with its "name". The page shows its readings at the first step, the
  /// last step, and some steps in between.
  void add_result(std::int64_t step, const nlohmann::json& result);
  /// Adds a failure of a task. `task` is a name such as "evaluation.tasks[2] (knn)". The page shows the last failure of each task.
  void add_evaluation_failure(std::int64_t step, const std::string& task, const std::string& reason);
  std::string html(const RunStatus& status) const;
  /// Writes the page atomically. Throws UserError.
  void write(const RunStatus& status);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
