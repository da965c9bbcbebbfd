#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "src/io/file_lock.h"
#include "src/optim/grad_norm_groups.h"
#include "src/training/checkpoint/checkpoint_keeper.h"
#include "src/training/log/training_monitor.h"
#include "src/training/memory/memory_plan.h"
#include "src/training/non_finite/non_finite.h"
#include "src/training/restore.h"
#include "src/training/step/non_finite_guard.h"
#include "src/training/step/step_pacer.h"
#include "src/training/step/step_runner.h"
#include <tessera/evaluation/task.h>
#include <tessera/training/config/config.h>

namespace tessera {

struct TaskResult;

/// How a run ended.
enum class Outcome {
  finished,
  interrupted,  // a rank received one of kSavingSignals, and the state was saved
  not_finite,   // a loss or gradient was NaN or infinite; weights and state are as before that step
};

/// Returns true if evaluation/step_N.json of this step covers all evaluation tasks of the run.
bool holds_evaluation(const Config& config, std::int64_t step);

/// How a rank uses the run's local folder.
struct FolderUse {
  bool separate = false;  // each machine has its own: the run has a mirror, and the other machines do not see rank 0's folder
  bool keeps = true;      // this rank makes and locks the folder: rank 0, and with `separate` the first rank of each machine
};

/// Runs the training that a configuration describes, as one rank of a group. Only rank 0 writes files, shows progress and
/// evaluates. All ranks must see the run's folder, unless the run has a mirror. The folder holds config.yaml (resolved), log.txt,
/// metrics.jsonl, run.html, checkpoints/ and evaluation/step_N.json.
class Trainer {
 public:
  /// resume.from is "none" (a fresh start; refuses a folder that already holds checkpoints), "auto" (the run's newest intact
  /// checkpoint, or a fresh start if there is none), or the path of a checkpoint or run folder. Throws UserError if files are
  /// wrong, if a checkpoint's settings or data differ in a way that is not allowed, or if the ranks have different configurations.
  Trainer(const Config& config, const Resume& resume, const ProcessGroup& group = {});

  /// Trains to the last step. Throws UserError if data cannot be read or the last checkpoint cannot be written, and JobError if
  /// another rank is lost.
  Outcome run();

  /// Returns the signal that ended the run, the same on all ranks; 0 if there was none.
  int stop_signal() const { return stop_signal_; }
  const RunState& state() const { return state_; }
  const TrainingRun& training_run() const { return run_; }

 private:
  void restore_or_initialize(const Resume& resume);
  void go_on_from(const Checkpoint& checkpoint, const std::string& folder, const ResumeChanges& changes);
  void warn_of_settings() const;
  void print_plan() const;
  PlanSettings plan_settings() const;
  /// Brings the checkpoint that rank 0 has chosen to the machines that do not see rank 0's folder. `step` is its step, on rank 0. Returns
  /// where it is on this machine.
  std::string bring_to_other_machines(const std::string& chosen, std::int64_t step);
  /// Deletes the checkpoints of these machines, so that a later session in which one of them has rank 0 fetches the whole run.
  void forget_on_other_machines();
  /// If training.micro_batch is `auto`, sets it to the largest number that fits on every rank, and logs this number.
  void settle_micro_batch();
  /// Throws the UserError that explains a step that ran out of memory.
  [[noreturn]] void explain_out_of_memory();

  Outcome train();
  TrainedStep train_step();
  /// Clips the gradients, and updates the weights unless the step was not finite. A recorded step includes this function.
  StepUpdate clip_and_update(const AccumulatedLosses& losses, UpdateInputs inputs);
  /// Does what follows an update and is never recorded: objective, buffers, moving averages.
  void finish_update();
  /// Reads back the losses and norms of all steps since the last call and checks that they are finite. Returns false if a step is not
  /// finite and the run must stop. If a step is skipped, state_ becomes the state after that step, and later steps must be computed again.
  bool read_back();
  void save(bool must);
  Outcome show(Outcome outcome);
  /// Returns the highest number of a signal that any rank has recorded, the same on every rank; 0 if there is none. Waits for all ranks.
  int signal_of_ranks() const;
  bool every(std::int64_t steps) const;
  double seconds_trained() const;

  /// Evaluates the model. Returns false if a signal came before all tasks were done; in that case nothing is written, and a resumed
  /// run repeats the evaluation.
  bool evaluate();
  /// Runs the evaluation tasks on rank 0, for which all ranks embed images and texts. Returns run_evaluation()'s result on every rank.
  bool evaluate_on_all_ranks();
  /// Runs the evaluation tasks. If their results cannot be written, logs an error. Called only on rank 0. Returns true if the metric of
  /// checkpoint.keep_best is the best so far.
  bool run_evaluation(const Embedder& embedder, const EvaluationContext& context);
  /// Runs the evaluation that is due at the step at which the run resumes, unless an earlier session has already run it.
  bool make_up_evaluation();
  Outcome interrupted_at_step();

  Config config_;
  ProcessGroup group_;
  Heartbeat heartbeat_;
  std::string folder_;
  FolderUse use_;
  std::unique_ptr<io::FileLock> lock_;  // lock on the run's folder, on the rank that keeps the folder
  std::unique_ptr<RunMirror> mirror_;   // on the same rank, if the run has one
  std::string tiles_;  // what `chunk: auto` has chosen, for the log
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
  bool evaluation_cut_short_ = false;  // set only on rank 0
  int stop_signal_ = 0;
  std::chrono::steady_clock::time_point started_;
  double seconds_before_ = 0;  // training time of earlier sessions
};

/// Checks that all ranks have the same configuration, and looks whether the machines share the run's folder. Collective. Throws UserError on
/// every rank.
FolderUse folder_use(const Config& config, const ProcessGroup& group);

/// Creates and locks the run's folder on the ranks that keep it. Throws UserError on every rank if another trainer holds the lock or if one
/// rank fails.
std::unique_ptr<io::FileLock> take_run_folder(const Config& config, const ProcessGroup& group, const FolderUse& use);

/// Makes the run's mirror on the ranks that keep its folder; on rank 0, also begins its session, which may fetch the run into this folder.
/// Returns null on the other ranks, and if the run has no mirror. If each machine has its own folder and one has a later checkpoint than
/// the store, brings this checkpoint to rank 0. Throws UserError on every rank.
std::unique_ptr<RunMirror> begin_mirror(const Config& config, const std::string& resume, const ProcessGroup& group, const FolderUse& use);

/// Stores what the mirror of a finished stage lacks. Throws UserError on every rank.
void store_finished_stage(const Config& config, const ProcessGroup& group);

/// Builds the run on every rank. Throws UserError on every rank if one of them fails.
TrainingRun build_on_all_ranks(const Config& config, const ProcessGroup& group);

}  // namespace tessera
