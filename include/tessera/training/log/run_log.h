#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tessera/training/log/event_file.h>
#include <tessera/training/log/metrics_row.h>
#include <tessera/training/log/metrics_table.h>
#include <tessera/training/log/row_command.h>
#include <tessera/training/log/run_page.h>

namespace tessera {

struct LogSettings;

/// metrics.jsonl, metrics.csv, TensorBoard's event files, the run's page, what log.command reads, and what the terminal shows: a progress bar there, plain
/// lines everywhere else.
class RunLog {
 public:
  /// Event files go into FOLDER/tensorboard. active: false on all ranks but the first, where nothing is written or
  /// shown.
  RunLog(const std::string& folder, std::int64_t total_steps, const LogSettings& settings, bool active = true);
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  /// Begins after this step (0: at the start). Rows of later steps are dropped, so that a resumed run's file and page
  /// read as if it had never stopped. title and facts: see RunPage.
  void resume_at(std::int64_t step, const std::string& title,
                 const std::vector<std::pair<std::string, std::string>>& facts);
  /// Appends a row and flushes it. A row that cannot be written is reported once, and training goes on.
  void record(const MetricsRow& record);
  /// Scalars of an evaluation: {"task.metric", value}.
  void evaluation(const RowPlace& place, const std::vector<std::pair<std::string, double>>& metrics);
  /// A warning that an evaluation task failed, and the same on the page. `task` says which: "evaluation.tasks[2] (knn)".
  void evaluation_failed(std::int64_t step, const std::string& task, const std::string& reason);
  /// What a task's numbers are of, for the page.
  void evaluated_data(const std::string& task, const std::string& data, std::int64_t samples);
  /// TaskResult::readings, for the page.
  void readings(std::int64_t step, const std::vector<std::pair<std::string, std::string>>& readings);
  /// Whether the page is a minute old.
  bool page_due() const;
  /// Writes run.html. The steps and the time left are filled in. What fails is reported as for rows.
  void write_page(RunStatus status);
  /// Moves the progress bar; cheap enough for every step.
  void tick(std::int64_t step);
  /// A line above the progress bar, and in log.txt.
  void line(const std::string& text);
  void warning(const std::string& text);
  void error(const std::string& text);
  /// Takes the bar off the terminal.
  void clear();

 private:
  std::string status(std::int64_t step) const;
  double seconds_left(std::int64_t step) const;
  void report_failed_write(const std::string& path, const std::string& reason);
  void add_to_table(const std::string& row);
  void start_command();
  /// Hands a row to log.command, which the first one starts.
  void hand_over(const std::string& row);

  std::string folder_, path_, title_;
  bool tensorboard_, wants_page_;
  MetricsTable table_;
  std::optional<std::string> command_line_;
  std::optional<RowCommand> command_;
  std::int64_t begin_ = 0;  // the step that this session begins after
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
