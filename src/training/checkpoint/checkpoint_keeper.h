#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <utility>

#include "src/training/checkpoint/best_checkpoint.h"
#include "src/training/checkpoint/checkpoint.h"
#include "src/training/checkpoint/run_mirror.h"
#include "src/training/run/training_run.h"
#include <tessera/training/config/config.h>

namespace tessera {

/// Writes checkpoints, one at a time, while training continues. Copies the tensors. A thread then writes these copies as a checkpoint.
/// Another thread stores the written checkpoint elsewhere: it copies the checkpoint to checkpoint.copy_to, runs checkpoint.command and
/// updates the mirror. If one of these fails, logs a warning.
class CheckpointWriter {
 public:
  /// `run_name` is passed to checkpoint.command.
  CheckpointWriter(CheckpointFolder folder, CheckpointSettings settings, std::string run_name = "run", RunMirror* mirror = nullptr);

  /// Starts writing a checkpoint. collect() must have been called for the previous checkpoint. If `stands_still` is true, the caller
  /// promises not to change the tensors before collect(). If `stands_still` is false and checkpoint.background is set, waits until the
  /// previous checkpoint is stored, copies the tensors, and a thread writes the copies. In all other cases, collect() writes the tensors
  /// without a copy, and then waits until all checkpoints are stored. For `others`, see CheckpointFolder::save().
  void begin(Checkpoint checkpoint, bool stands_still = false, std::function<void()> others = {});
  /// Returns true if a started checkpoint has not been collected yet.
  bool pending() const { return written_.valid(); }
  /// Waits for the pending checkpoint write and returns its folder. Throws UserError if the write failed.
  std::string collect();
  /// Runs `task` in a thread, after everything that earlier calls and written checkpoints have left to do. If the task throws,
  /// logs a warning. collect() must have been called for the pending checkpoint.
  void later(std::function<void()> task);
  /// Waits until all collected checkpoints are stored and all tasks of later() have ended.
  void finish();

 private:
  std::string write(const Checkpoint& checkpoint, const std::function<void()>& others);

  CheckpointFolder folder_;
  CheckpointSettings settings_;
  std::string run_name_;
  RunMirror* mirror_;
  // Declared last, because the futures' destructors wait for the threads. The thread of written_ uses stored_.
  std::future<void> stored_;
  std::future<std::string> written_;
};

/// This rank's part of a checkpoint, which a thread writes, and what the ranks tell each other about their parts.
class PartWriter {
 public:
  /// What a rank tells the others: the step of the newest save for which it has done its part, and whether that failed.
  struct Told {
    std::int64_t done = -1;
    bool failed = false;
  };

  /// `write` writes this rank's part of the save at `step`; in a thread if `background` is set.
  void begin(std::int64_t step, bool background, std::function<void()> write);
  /// Returns true if a save has begun that not all ranks are known to have done.
  bool pending() const { return pending_; }
  /// What this rank has to tell the others now. Logs its failure once.
  Told told();
  /// Takes the lowest step and the highest failure that the ranks told.
  void hear(const Told& all);
  /// Waits for this rank's part, and then for the other ranks. Collective; every rank must call it after the same begin().
  void settle(const ProcessGroup& group);
  /// Returns a function that waits until all ranks have done their parts of this save. It throws UserError if one failed.
  std::function<void()> others();
  /// Ends the wait of others() with an error if it still waits, because the job is about to end.
  ~PartWriter();

 private:
  std::int64_t step_ = -1;
  bool pending_ = false, failed_ = false;
  std::promise<bool> all_;  // whether one has failed
  std::future<void> own_;
};

/// Manages the checkpoints of a run: chooses the checkpoint to resume from, checks whether a save is due by checkpoint.every_minutes,
/// writes the state in the background, and tracks the last good checkpoint. Rank 0 reads and writes all files except those that other ranks
/// write: their parts of a sharded optimizer state, and averages (share_of()).
class CheckpointKeeper {
 public:
  /// A function that reports a failed save to the user.
  using ReportError = std::function<void(const std::string&)>;

  /// `config`, `group`, `run` and `mirror` must outlive this object. `folder` is the run's folder; checkpoints are in its subfolder
  /// `checkpoints`. With `separate`, the ranks of other machines cannot write there, and rank 0 writes everything. `mirror` has begun its
  /// session on rank 0; null if the run has none.
  CheckpointKeeper(const Config& config, const ProcessGroup& group, const TrainingRun& run, const std::string& folder, bool separate,
                   RunMirror* mirror, ReportError report_error);

  /// Returns the checkpoint that `resume` refers to (see Trainer), together with its folder; nothing for a fresh start. Call it
  /// only on rank 0. Throws UserError.
  std::optional<std::pair<std::string, Checkpoint>> choose(const std::string& resume) const;
  /// Records that the run was resumed from this checkpoint.
  void resumed_from(const std::string& checkpoint, std::int64_t step);

  /// Returns true if `checkpoint` is the folder in which this run saves `step`.
  bool is_own(const std::string& checkpoint, std::int64_t step) const;

  /// Returns true if, according to this rank's clock, checkpoint.every_minutes have passed since the last save.
  bool overdue() const;
  /// Saves a checkpoint, unless this step is already saved. A failure is reported, and the next save tries again. With `must`,
  /// waits for the save and throws UserError if it fails. Every rank must call it.
  void save(const RunState& state, bool must);
  /// Returns true if the metric of checkpoint.keep_best is better than it was for the best checkpoint so far. NaN and infinity are never
  /// better. If the metric was not measured, reports an error once and returns false. Call it only on rank 0.
  bool is_best(const MeasuredMetrics& measured);
  /// Must be called on every rank, after is_best() has returned true for this state. Saves a checkpoint, unless this step is already saved.
  /// Rank 0 waits until the checkpoint is completely written, and marks it as the best.
  void save_best(const RunState& state);
  /// Waits for the pending save, if there is one. If it failed, reports the failure and returns false. Every rank must call it.
  bool wait() {
    parts_.settle(group_);
    return collect(false);
  }
  /// Stores everything that the mirror lacks, at the end of the run. Every rank must call it. Throws UserError.
  void finish_mirror();
  /// What this rank tells the others about its part of the pending save, and what it hears from all.
  PartWriter& parts() { return parts_; }
  /// Returns the current state of the run, gathered from all ranks; complete only on rank 0. Every rank must call it.
  Checkpoint gather(RunState state) const;
  /// Returns the folder of the newest checkpoint that this session has written or resumed from; empty if there is none.
  const std::string& last_good() const { return last_good_; }

 private:
  using Clock = std::chrono::steady_clock;

  std::optional<std::pair<std::string, Checkpoint>> newest() const;
  /// The current state of the run without the optimizer's moments. Every rank must call it.
  Checkpoint describe(RunState state) const;
  bool save_parts(Checkpoint checkpoint, bool must);
  bool write(Checkpoint checkpoint, bool must, std::function<void()> others = {});
  bool collect(bool must);

  const Config& config_;
  const ProcessGroup& group_;
  const TrainingRun& run_;
  std::string run_folder_;
  const bool separate_;
  RunMirror* mirror_;
  ReportError report_error_;
  CheckpointFolder folder_;
  CheckpointWriter writer_;
  PartWriter parts_;  // declared after writer_, because its destructor ends a wait of the writer's thread
  std::string last_good_;
  std::optional<BestCheckpoint> best_;  // the checkpoint whose name is in the file `best`
  bool reported_not_measured_ = false;
  double judged_ = 0;               // the value for which is_best() returned true
  std::int64_t last_saved_ = -1;    // step of this run's last save, which may still be pending
  std::int64_t writing_step_ = -1;  // step of the save being written
  Clock::time_point last_save_ = Clock::now();
};

}  // namespace tessera
