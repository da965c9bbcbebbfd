#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/evaluation/task.h>
#include <tessera/training/checkpoint/checkpoint.h>
#include <tessera/training/checkpoint/checkpoint_writer.h>
#include <tessera/training/config/config.h>
#include <tessera/training/memory/memory_model.h>
#include <tessera/training/log/run_log.h>
#include <tessera/training/log/step_profiler.h>
#include <tessera/training/step/step_runner.h>
#include <tessera/optim/grad_norm_groups.h>
#include <tessera/training/step/non_finite_guard.h>
#include <tessera/training/log/mfu.h>
#include <tessera/training/log/input_bound_detector.h>

namespace tessera {

/// How a run ended.
enum class Outcome {
  finished,
  interrupted,  // SIGINT, SIGTERM or SIGUSR1 on any rank; the state is saved
  not_finite,   // a loss or gradient was NaN or infinite: weights and state are those before that step
};

/// Trains what a configuration describes, as one rank of a group. Rank 0 alone writes files, shows progress and
/// evaluates; the run's folder, which all ranks must see, holds config.yaml (resolved), log.txt,
/// metrics.jsonl, run.html, checkpoints/ and evaluation/step_N.json.
class Trainer {
 public:
  /// resume: "none" (refuses a folder that already holds checkpoints), "auto" (the run's newest whole checkpoint, or a
  /// fresh start), or the path of a checkpoint or run folder. Throws UserError: wrong files, or a checkpoint of other
  /// settings, or ranks with different configurations.
  Trainer(const Config& config, const std::string& resume, const ProcessGroup& group = {});

  /// Trains to the last step. Throws UserError when data fail or the last checkpoint cannot be written, JobError when
  /// another rank is lost.
  Outcome run();

  /// The signal that ended the run, the same on all ranks; 0 = none.
  int stop_signal() const { return stop_signal_; }
  const RunState& state() const { return state_; }
  const TrainingRun& training_run() const { return run_; }

 private:
  struct PendingUpdate {
    RunState before;
    std::int64_t updates_before = 0;  // of the optimizer
    double scale = 1;                 // of the loss
    AccumulatedLosses result;
    double learning_rate = 0;
    GradientNorms norms;  // groups: as grad_norm_groups_ names them
    at::Tensor numbers;   // loss, gradient norm, terms, towers' gradient norms: float32, means over the ranks
    NonFiniteGuard::StepDecision decision = NonFiniteGuard::StepDecision::update;
  };

  void restore_or_initialize(const std::string& resume);
  std::optional<std::pair<std::string, Checkpoint>> choose_checkpoint(const std::string& resume);
  void restore(const Checkpoint& checkpoint, const std::string& folder);
  void print_plan() const;
  PlanSettings plan_settings() const;
  /// Replaces training.micro_batch auto by the largest number that fits on every rank, and says so.
  void settle_micro_batch();
  /// Throws the UserError for a step that found no room.
  [[noreturn]] void explain_out_of_memory();

  Outcome train();
  PendingUpdate train_step();
  /// The step under the profiler, and the session's first under a FlopCounter.
  PendingUpdate observed_step();
  void update(double learning_rate);
  at::Tensor mean_over_ranks(const PendingUpdate& step) const;
  struct Agreed {
    int signal = 0;          // the greatest of those that any rank has noted
    bool save_late = false;  // whether checkpoint.every_minutes have passed, by rank 0's clock
  };
  Agreed agree() const;
  /// Reads pending results back from the device; false when one of them is not finite and the run is to stop.
  bool read_back();
  MetricsRow to_record(const PendingUpdate& step, const std::vector<double>& numbers);
  void watch_waiting();
  /// Writes the run's page.
  void show(const std::string& state, bool good = true, const std::string& note = "");
  Outcome show(Outcome outcome);
  std::vector<std::pair<std::string, std::string>> facts() const;

  /// Tells of a step that is not finite, and notes its samples; whether the run goes on.
  bool go_on_after(const PendingUpdate& step, const std::vector<double>& numbers);
  /// Saves the state before the step for --replay-step and looks for the first value that is not finite.
  void examine(const PendingUpdate& step);
  std::string keys_of_all_ranks(const std::vector<std::string>& own) const;
  void write_incident(const PendingUpdate& step, const std::string& values, const std::string& keys);
  /// On rank 0.
  void report_error(const std::string& text);

  EvaluationContext evaluation_context() const;
  void evaluate();
  void run_evaluation();
  /// Saves; when that fails the run goes on with an error line, unless `must` is set.
  void save_checkpoint(bool must);
  bool write_checkpoint(bool must, Checkpoint checkpoint);
  /// Of all ranks together; whole on rank 0.
  Checkpoint gather_checkpoint();
  /// Waits for the save that is under way, if any; false when it failed.
  bool collect_checkpoint(bool must);
  void gather_positions();
  bool every(std::int64_t steps) const;
  double seconds_trained() const;

  Config config_;
  ProcessGroup group_;
  Heartbeat heartbeat_;
  std::string folder_;
  CheckpointFolder checkpoints_;
  CheckpointWriter writer_;
  TrainingRun run_;
  GradientReducer gradients_;
  StepRunner runner_;
  GradScaler scale_;
  NonFiniteGuard guard_;
  RunState state_;
  RunLog log_;
  Mfu mfu_;
  GradNormGroups grad_norm_groups_;
  StepProfiler profiler_;
  InputBoundDetector input_bound_;

  std::vector<PendingUpdate> pending_;
  std::string last_good_;         // newest checkpoint written or resumed from
  std::int64_t last_saved_ = -1;  // step of the last save, which may still be under way
  std::int64_t writing_step_ = -1;
  std::chrono::steady_clock::time_point last_save_;
  std::int64_t last_evaluated_ = -1;
  int stop_signal_ = 0;
  std::int64_t examined_ = 0;          // steps that were not finite, in this session
  std::int64_t skipped_in_a_row_ = 0;  // for not being finite
  std::chrono::steady_clock::time_point started_;
  double seconds_before_ = 0;  // trained in earlier sessions

  struct Window {  // since the last row of metrics.jsonl
    std::int64_t samples = 0;
    double seconds = 0;
    double wait_seconds = 0;
    LoaderStatistics loader;  // as they were then
  } window_;
};

}  // namespace tessera
