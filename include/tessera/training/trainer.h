#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include <tessera/io/file_lock.h>
#include <tessera/optim/grad_norm_groups.h>
#include <tessera/training/checkpoint/checkpoint_keeper.h>
#include <tessera/training/config/config.h>
#include <tessera/training/log/training_monitor.h>
#include <tessera/training/memory/memory_plan.h>
#include <tessera/training/non_finite/non_finite_handler.h>
#include <tessera/training/restore.h>
#include <tessera/training/step/non_finite_guard.h>
#include <tessera/training/step/step_pacer.h>
#include <tessera/training/step/step_runner.h>

namespace tessera {

struct TaskResult;

/// How a run ended.
enum class Outcome {
  finished,
  interrupted,  // one of kSavingSignals on any rank; the state is saved
  not_finite,   // a loss or gradient was NaN or infinite: weights and state are those before that step
};

/// Trains what a configuration describes, as one rank of a group. Rank 0 alone writes files, shows progress and
/// evaluates; the run's folder, which all ranks must see, holds config.yaml (resolved), log.txt,
/// metrics.jsonl, run.html, checkpoints/ and evaluation/step_N.json.
class Trainer {
 public:
  /// resume.from: "none" (refuses a folder that already holds checkpoints), "auto" (the run's newest whole checkpoint, or
  /// a fresh start), or the path of a checkpoint or run folder. Throws UserError: wrong files, or a checkpoint of other
  /// settings or data than may change, or ranks with different configurations.
  Trainer(const Config& config, const Resume& resume, const ProcessGroup& group = {});

  /// Trains to the last step. Throws UserError when data fail or the last checkpoint cannot be written, JobError when
  /// another rank is lost.
  Outcome run();

  /// The signal that ended the run, the same on all ranks; 0 = none.
  int stop_signal() const { return stop_signal_; }
  const RunState& state() const { return state_; }
  const TrainingRun& training_run() const { return run_; }

 private:
  void restore_or_initialize(const Resume& resume);
  void go_on_from(const Checkpoint& checkpoint, const std::string& folder, const ResumeChanges& changes);
  void warn_of_settings() const;
  void print_plan() const;
  PlanSettings plan_settings() const;
  /// Replaces training.micro_batch auto by the largest number that fits on every rank, and says so.
  void settle_micro_batch();
  /// Throws the UserError for a step that found no room.
  [[noreturn]] void explain_out_of_memory();

  Outcome train();
  TrainedStep train_step();
  void update(double learning_rate);
  /// Looks at the steps whose numbers are not read yet; false when one is not finite and the run is to stop. After a step
  /// that is skipped state_ is that after it, and the steps since are to be made again.
  bool read_back();
  void save(bool must);
  Outcome show(Outcome outcome);
  struct Agreed {
    int signal = 0;        // the greatest of those that any rank has noted
    bool overdue = false;  // whether the clock of rank 0 asks for a checkpoint
  };
  Agreed agree() const;
  bool every(std::int64_t steps) const;
  double seconds_trained() const;

  /// False when a signal came while tasks were still to be run: nothing is written of it, and a resumed run makes it anew.
  bool evaluate();
  /// On rank 0. Whether the state is the best so far by checkpoint.keep_best.
  bool run_evaluation();
  /// On rank 0. Whether evaluation/step_N.json of this step tells of the tasks that the run has now.
  bool holds_evaluation() const;
  /// Makes the evaluation that is due where the run goes on, unless an earlier session has.
  bool make_up_evaluation();
  Outcome interrupted_at_step();
  /// Their names are "task.metric".
  MeasuredMetrics log_result(const TaskResult& result);

  Config config_;
  ProcessGroup group_;
  Heartbeat heartbeat_;
  std::string folder_;
  std::unique_ptr<io::FileLock> lock_;  // of the run's folder, on rank 0
  TrainingRun run_;
  GradientReducer gradients_;
  StepRunner runner_;
  GradScaler scale_;
  NonFiniteGuard guard_;
  GradNormGroups grad_norm_groups_;
  TrainingMonitor monitor_;
  CheckpointKeeper checkpoints_;
  NonFiniteHandler non_finite_;
  StepPacer pacer_;

  RunState state_;
  std::int64_t last_evaluated_ = -1;
  bool evaluation_cut_short_ = false;  // on rank 0
  int stop_signal_ = 0;
  std::chrono::steady_clock::time_point started_;
  double seconds_before_ = 0;  // trained in earlier sessions
};

}  // namespace tessera
