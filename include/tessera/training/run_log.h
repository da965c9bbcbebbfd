#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tessera/training/event_file.h>

namespace tessera {

/// One row of metrics.jsonl.
struct StepRecord {
  std::int64_t step = 0;  // updates done
  double learning_rate = 0;
  double loss = 0;
  std::vector<std::pair<std::string, double>> terms;
  double grad_norm = 0;
  std::optional<double> logit_scale;  // the parameter itself (log of the scale)
  double samples_per_second = 0;      // since the row before
  double seconds = 0;                 // trained so far, over all sessions
  double wait_share = 0;              // part of the time since the row before that the step stood waiting for data
};

/// metrics.jsonl, TensorBoard's event files, and what the terminal shows: a progress bar there, plain lines everywhere
/// else.
class RunLog {
 public:
  /// tensorboard: whether to write event files, into FOLDER/tensorboard. active: false on all ranks but the first, where
  /// nothing is written or shown.
  RunLog(const std::string& folder, std::int64_t total_steps, bool tensorboard, bool active = true);
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  /// Begins after this step (0: at the start). Rows of later steps are dropped, so that a resumed run's file reads as if
  /// it had never stopped.
  void resume_at(std::int64_t step);
  /// Appends a row and flushes it. A row that cannot be written is reported once, and training goes on.
  void record(const StepRecord& record);
  /// Scalars of an evaluation, for TensorBoard: {name, value}.
  void evaluation(std::int64_t step, const std::vector<std::pair<std::string, double>>& metrics);
  /// Moves the progress bar; cheap enough for every step.
  void tick(std::int64_t step);
  /// A line above the progress bar, and in log.txt.
  void line(const std::string& text);
  /// Takes the bar off the terminal.
  void clear();

 private:
  std::string status(std::int64_t step) const;
  void report_failed_write(const std::string& path);

  std::string path_;
  std::string event_folder_;  // empty: no event files
  std::optional<EventFile> events_;
  std::int64_t total_steps_;
  bool active_;
  int descriptor_ = -1;
  bool terminal_ = false;
  bool bar_shown_ = false;
  bool write_failed_ = false;
  std::optional<StepRecord> last_;
  std::chrono::steady_clock::time_point last_tick_;
};

}  // namespace tessera
