#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace tessera {

/// Where a run stands, for its page.
struct RunStatus {
  std::string state = "running";  // "running": the page then reloads itself; else how the run ended
  bool good = true;               // whether that is how it should be
  std::string note;               // a line beside the state: what went wrong, how to go on; may be empty
  std::int64_t step = 0, total_steps = 0, samples = 0;
  double seconds = 0, seconds_left = 0;
  std::map<std::string, std::int64_t> skipped;  // samples of this session, by reason
};

/// RUN/run.html: the run's state, settings, curves, evaluations, checkpoints and last warnings on one page without
/// script or outside files, in light and dark. What it shows of the past is kept thinned, so it stays small however
/// long the run is.
class RunPage {
 public:
  /// facts: the settings worth showing, {name, value}.
  RunPage(std::string folder, std::string title, std::vector<std::pair<std::string, std::string>> facts);
  ~RunPage();

  /// Forgets everything and reads what the folder holds of steps up to this one: evaluation/step_N.json. The rows of
  /// metrics.jsonl are the caller's.
  void resume_at(std::int64_t step);
  void add_row(const nlohmann::json& row);
  /// metrics: {"task.metric", value}.
  void add_evaluation(std::int64_t step, const std::vector<std::pair<std::string, double>>& metrics);
  /// What the task's numbers are of: the source's description, and how many samples were measured.
  void add_evaluation_data(const std::string& task, const std::string& data, std::int64_t samples);
  /// The page shows the last failure of each task. `task` says which: "evaluation.tasks[2] (knn)".
  void add_evaluation_failure(std::int64_t step, const std::string& task, const std::string& reason);
  /// What an evaluation made of single samples (TaskResult::readings): the page shows those of the first step, of the
  /// last, and of some between them.
  void add_reading(std::int64_t step, const std::string& sample, const std::string& text);

  /// The page's text.
  std::string html(const RunStatus& status) const;
  /// Writes it, aside first. Throws UserError.
  void write(const RunStatus& status);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
