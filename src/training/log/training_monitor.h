#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/base/clock.h"
#include "src/optim/clip_grad_norm.h"
#include "src/training/checkpoint/checkpoint.h"
#include "src/training/log/advice.h"
#include "src/training/log/metrics_row.h"
#include "src/training/log/mfu.h"
#include "src/training/log/run_log.h"
#include "src/training/log/step_profiler.h"
#include "src/training/step/non_finite_guard.h"
#include "src/training/step/step_runner.h"

namespace tessera {

/// A step that has been run. Its numbers stay on the device until TrainingMonitor reads them back.
struct TrainedStep {
  RunState before, after;  // TrainingMonitor fills in before.loss_scale; after.loss_scale is unused
  AccumulatedLosses losses;
  double learning_rate = 0;
  at::Tensor numbers;   // the result of step_numbers()
  at::Tensor decision;  // the result of NonFiniteGuard::check()
  at::Tensor scale;     // GradScaler::numbers before the step; undefined without loss scaling
  NonFiniteGuard::StepDecision decided = NonFiniteGuard::StepDecision::update;  // filled in by TrainingMonitor
  MetricsRow row;                                                               // filled in by TrainingMonitor
};

/// Returns the loss, the gradient norm, the terms, the statistics, and the gradient norm of each group, as float32 [n] on the device. All
/// these numbers are averaged over ranks. Does not wait for the device.
at::Tensor step_numbers(const AccumulatedLosses& losses, const GradientNorms& norms, const ProcessGroup& group,
                        const at::Device& device);

/// Reports on a run's steps: reads their numbers back when they are needed, writes rows and the page, updates the progress bar,
/// counts the operations of a step, and traces the steps in log.profile.
class TrainingMonitor {
 public:
  /// A function that returns seconds since some fixed moment.
  using Clock = std::function<double()>;

  /// The references must outlive this object. Files go into `folder`, which must exist; only rank 0 writes them. `clock` measures
  /// the speed reported in rows.
  TrainingMonitor(const Config& config, const ProcessGroup& group, const TrainingRun& run, const std::string& folder,
                  Clock clock = steady_seconds);

  /// Starts after `step` (0 for a new run). Drops the entries of later steps from the files. `id` is RunState::id.
  void resume_at(std::int64_t step, const std::string& id = "");
  /// Checks a batch on the CPU for problems that keep a run from learning.
  void look_at(const Batch& batch);
  /// Runs step `number` by calling make(), and keeps the result for read_back().
  void observe(std::int64_t number, const std::function<TrainedStep()>& make);
  /// Runs work that is not training, such as saving or evaluating. The speed in the rows leaves out the time of this work.
  void leave_out(const std::function<void()>& body);
  /// Returns the number of steps that were observed since the last call of read_back().
  std::int64_t unread() const { return std::ssize(unread_); }
  /// Waits for the device and returns the steps that were observed since the last call of read_back(), oldest first.
  std::vector<TrainedStep> read_back();
  /// Writes the row of a step if log.every_steps asks for it. The row's speed covers the time since the previous row (for the first row,
  /// since the start of the first step), so call read_back() first, which waits for the device. `now` is the run's current state.
  void record(MetricsRow row, const RunState& now);
  /// See RunLog::evaluated.
  void evaluated(const RunState& now, const std::vector<std::pair<std::string, double>>& metrics, const nlohmann::json& result);
  /// Writes the run's page. RunStatus documents `state`, `good` and `note`.
  void show(const RunState& now, const std::string& state = "running", bool good = true, const std::string& note = "");

  RunLog& log() { return log_; }

 private:
  MetricsRow row_of(const TrainedStep& step) const;
  RowPlace place_of(const RunState& state) const;
  /// Writes the warnings that the rules give for this event to the log and to the next row.
  void advise_on(const RunEvent& event);
  /// Reports what share of the texts' tokens was cut off since the last call.
  void report_cut_texts(const TrainedStep& step, const std::map<std::string, TextCuts>& cuts);
  /// Adds the objective's logit_scale and logit_bias, trained or not.
  void add_logit_scales(MetricsRow& row) const;
  /// With several ranks, adds which of them the others have waited for since the previous row, which took `seconds`.
  void add_slowest_rank(MetricsRow& row, double seconds) const;
  /// Returns, for each name in AccumulatedLosses::used, the share of entries that no rank has used since the previous row.
  std::vector<std::pair<std::string, double>> unused_shares() const;

  const Config& config_;
  const ProcessGroup& group_;
  const TrainingRun& run_;
  std::string folder_;
  std::vector<std::string> grad_norm_names_;
  RunLog log_;
  Mfu mfu_;
  std::string first_texts_;  // describes the length of the texts in the session's first batch
  StepProfiler profiler_;
  std::vector<AdviceRule> advice_;
  std::map<std::string, TextCuts> cuts_before_;  // LoaderStatistics::cuts at the last report
  CutReport cuts_;                               // the last report, for the next row from cuts_step_ on
  std::int64_t cuts_step_ = 0;
  std::vector<std::string> warnings_;  // warnings since the previous row
  std::vector<TrainedStep> unread_;
  Clock clock_;

  struct Window {                 // the time since the last row of metrics.jsonl
    std::optional<double> begin;  // start of the window, in seconds of clock_
    double left_out = 0;          // seconds spent on work that is not training
    std::int64_t samples = 0;
    double wait_seconds = 0;
    std::vector<double> waited_for_ranks;      // seconds of each step
    std::vector<std::vector<DeviceSeconds>> forward;  // of each step, AccumulatedLosses::forward
    LoaderStatistics loader;                   // statistics at the start of the window
    std::map<std::string, at::Tensor> used{};  // AccumulatedLosses::used, merged over the window's steps
  } window_;
};

}  // namespace tessera
