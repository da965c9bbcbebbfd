#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <tessera/optim/clip_grad_norm.h>
#include <tessera/training/checkpoint/checkpoint.h>
#include <tessera/training/log/caption_watch.h>
#include <tessera/training/log/cut_watch.h>
#include <tessera/training/log/chance_watch.h>
#include <tessera/training/log/input_bound_detector.h>
#include <tessera/training/log/metrics_row.h>
#include <tessera/training/log/mfu.h>
#include <tessera/training/log/run_log.h>
#include <tessera/training/log/step_profiler.h>
#include <tessera/training/step/non_finite_guard.h>
#include <tessera/training/step/step_runner.h>

namespace tessera {

/// A step that was made. Its numbers stay on the device until TrainingMonitor reads them back.
struct TrainedStep {
  RunState before, after;  // loss_scale of `before` is filled in by TrainingMonitor, that of `after` means nothing
  AccumulatedLosses losses;
  double learning_rate = 0;
  at::Tensor numbers;   // as step_numbers gives them
  at::Tensor decision;  // as NonFiniteGuard gives it; undefined: an update
  at::Tensor scale;     // GradScaler::numbers before the step; undefined: none
  NonFiniteGuard::StepDecision decided = NonFiniteGuard::StepDecision::update;  // filled in by TrainingMonitor
  MetricsRow row;                                                               // filled in by TrainingMonitor
};

/// Loss, gradient norm, terms, statistics, and the gradient norm of each group, as float32 [n] on the device: means over the ranks.
/// Does not wait for the device.
at::Tensor step_numbers(const AccumulatedLosses& losses, const GradientNorms& norms, const ProcessGroup& group,
                        const at::Device& device);

/// What a run tells of its steps: reads their numbers back when they are wanted, writes rows and page, moves the progress
/// bar, counts the operations of a step and traces those that log.profile names.
class TrainingMonitor {
 public:
  /// Seconds that pass, from any moment on.
  using Clock = std::function<double()>;

  /// The references must outlive it. Files go into `folder`, which must be there; rank 0 alone writes them. clock: by
  /// which a row's speed is told.
  TrainingMonitor(const Config& config, const ProcessGroup& group, const TrainingRun& run, const std::string& folder,
                  Clock clock = steady_seconds);

  /// Begins after this step (0: at the start); what the files hold of later ones is dropped.
  void resume_at(std::int64_t step);
  /// Looks at a batch on the CPU for what keeps a run from learning.
  void look_at(const Batch& batch);
  /// Has step `number` made, and keeps it for read_back().
  void observe(std::int64_t number, const std::function<TrainedStep()>& make);
  /// Runs what is not training (saving, evaluating): no row's speed counts its time.
  void leave_out(const std::function<void()>& body);
  /// Steps observed since the last call of read_back().
  std::int64_t unread() const { return std::ssize(unread_); }
  /// The steps observed since the last call, oldest first; waits for the device to finish them.
  std::vector<TrainedStep> read_back();
  /// Writes the row of a step, if log.every_steps says so. Its speed is by the clock since the row before (the first
  /// row's: since the first step began), so the steps must have been read back. `now`: where the run stands.
  void record(MetricsRow row, const RunState& now);
  /// Scalars of an evaluation: {"task.metric", value}.
  void evaluated(const RunState& now, const std::vector<std::pair<std::string, double>>& metrics);
  /// Writes the run's page; good: whether the state is as it should be; note: a line beside it.
  void show(const RunState& now, const std::string& state = "running", bool good = true, const std::string& note = "");

  RunLog& log() { return log_; }

 private:
  static double steady_seconds();
  MetricsRow row_of(const TrainedStep& step) const;
  RowPlace place_of(const RunState& state) const;
  /// At the end of an epoch, and of the run: which share of the texts' tokens was cut off.
  void tell_of_cuts(const TrainedStep& step);
  /// At the end of the first epoch, when it is known how many samples are skipped.
  void tell_of_shorter_epochs();
  /// Into the log and the next row.
  void warn(const std::string& text);
  /// Of each thing that AccumulatedLosses::used speaks of, the share that no rank has used since the row before.
  std::vector<std::pair<std::string, double>> unused_shares() const;

  const Config& config_;
  const ProcessGroup& group_;
  const TrainingRun& run_;
  std::string folder_;
  std::vector<std::string> grad_norm_names_;
  RunLog log_;
  Mfu mfu_;
  std::string first_texts_;  // how long those of the session's first batch are
  StepProfiler profiler_;
  InputBoundDetector input_bound_;
  ChanceWatch chance_;
  std::optional<CaptionWatch> captions_;  // none: equal captions do no harm
  std::optional<CutWatch> cuts_;          // none: there are no texts
  std::int64_t cuts_told_at_ = 0;         // step
  std::vector<std::string> warnings_;     // since the row before
  std::vector<TrainedStep> unread_;
  Clock clock_;

  struct Window {                 // since the last row of metrics.jsonl
    std::optional<double> begin;  // by the clock
    double left_out = 0;          // seconds that were no training
    std::int64_t samples = 0;
    double wait_seconds = 0;
    LoaderStatistics loader;                   // as they were then
    std::map<std::string, at::Tensor> used{};  // AccumulatedLosses::used, by any step
  } window_;
};

}  // namespace tessera
