#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/training/log/event_file.h"
#include "src/training/log/metrics_row.h"
#include "src/training/log/metrics_table.h"
#include "src/training/log/row_command.h"
#include "src/training/log/run_page.h"
#include <tessera/base/log.h>

namespace tessera {

struct LogSettings;

/// Writes metrics.jsonl, metrics.csv, TensorBoard event files, the run's page and the input of log.command. Also shows a progress bar on a
/// terminal, or writes plain lines otherwise.
class RunLog {
 public:
  /// Event files go into FOLDER/tensorboard. `active` is true only on the first rank; other ranks write and show nothing.
  RunLog(const std::string& folder, std::int64_t total_steps, const LogSettings& settings, bool active = true);
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  /// Starts the log after `step` (0 for a new run). Drops rows of later steps, so that a resumed run's files and page look as if it had
  /// never stopped. A new run keeps nothing of an earlier run in the same folder. `title` and `facts` are passed to RunPage, `id`
  /// (RunState::id) to log.command.
  void resume_at(std::int64_t step, const std::string& title,
                 const std::vector<std::pair<std::string, std::string>>& facts, const std::string& id = "");
  /// See RunPage::set_chance. Call it after resume_at().
  void set_chance(const std::map<std::string, double>& levels) { if (page_) page_->set_chance(levels); }
  /// Appends a row and flushes it. If rows cannot be written, reports it once, and training continues.
  void record(const MetricsRow& record);
  /// Records an evaluation's result: its metrics as {"task.metric", value}, and the result as JSON (to_json(TaskResult)) with its "name".
  void evaluated(const RowPlace& place, const std::vector<std::pair<std::string, double>>& metrics, const nlohmann::json& result);
  /// Warns, in the log and on the page, that an evaluation task failed. `task` is a name such as "evaluation.tasks[2] (knn)".
  void evaluation_failed(std::int64_t step, const std::string& task, const std::string& reason);
  /// Returns true if the page is at least a minute old.
  bool page_due() const;
  /// Fills in the total steps and the remaining time in `status`, and writes run.html from it. Reports failures as record() does.
  void write_page(RunStatus status);
  /// Updates the progress bar. Cheap enough to be called in every step.
  void tick(std::int64_t step);
  /// Writes a line to log.txt and to the terminal, above the progress bar.
  void line(const std::string& text) { say(log::Level::info, text); }
  void warning(const std::string& text) { say(log::Level::warning, text); }
  void error(const std::string& text) { say(log::Level::error, text); }
  /// Removes the progress bar from the terminal.
  void clear();

 private:
  void say(log::Level level, const std::string& text);
  std::string status(std::int64_t step) const;
  double seconds_left(std::int64_t step) const;
  void report_failed_write(const std::string& path, const std::string& reason);
  /// Writes a row to metrics.csv, log.command and TensorBoard.
  void spread(const nlohmann::ordered_json& row);
  void start_command();
  /// Sends a row to log.command; the first row starts the command.
  void hand_over(const std::string& row);

  std::string folder_, path_, title_, id_;
  bool tensorboard_, wants_page_;
  MetricsTable table_;
  std::optional<std::string> command_line_;
  std::optional<RowCommand> command_;
  std::int64_t begin_ = 0;  // the step after which this session started
  std::optional<EventFile> events_;
  std::optional<RunPage> page_;
  std::chrono::steady_clock::time_point page_written_;
  std::int64_t total_steps_;
  bool active_;
  int descriptor_ = -1;
  bool terminal_ = false;
  bool bar_shown_ = false;
  bool write_failed_ = false;
  std::optional<MetricsRow> last_;
  std::chrono::steady_clock::time_point last_tick_;
};

}  // namespace tessera
