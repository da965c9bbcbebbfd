#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include <tessera/training/checkpoint/best_checkpoint.h>
#include <tessera/training/checkpoint/checkpoint_writer.h>
#include <tessera/training/run/training_run.h>

namespace tessera {

/// The checkpoints of a run under way: which one it begins from, when the clock asks for the next, gathering it from all
/// ranks, writing it in the background, and which is the last good one. Rank 0 alone reads the folder and writes.
class CheckpointKeeper {
 public:
  /// Tells the user of a save that failed.
  using ReportError = std::function<void(const std::string&)>;

  /// The references must outlive it. The run's folder holds them in `checkpoints`.
  CheckpointKeeper(const Config& config, const ProcessGroup& group, const TrainingRun& run, const std::string& folder,
                   ReportError report_error);

  /// The checkpoint that `resume` means (see Trainer), with its folder; nothing for a fresh start. On rank 0. Throws
  /// UserError.
  std::optional<std::pair<std::string, Checkpoint>> choose(const std::string& resume) const;
  /// The run has gone on from this one.
  void resumed_from(const std::string& checkpoint, std::int64_t step);

  /// Whether checkpoint.every_minutes have passed since the last save, by this rank's clock.
  bool overdue() const;
  /// Saves, unless this step is saved already. A failure is reported and the next save tries again; with `must` the save
  /// is waited for, and a failure is a UserError. Every rank must call it.
  void save(const RunState& state, bool must);
  /// Whether the run's state would be the best by checkpoint.keep_best. NaN and infinity never are, and a metric that was
  /// not measured is an error that is reported once. On rank 0.
  bool is_best(const MeasuredMetrics& measured);
  /// Saves the state that is_best() was true of, unless it is saved already, and names it the best when it is written.
  /// Every rank must call it.
  void save_best(const RunState& state);
  /// Waits for the save that is under way, if any; false when it failed, which is reported.
  bool wait() { return collect(false); }
  /// The run as it stands, from all ranks; whole on rank 0. Every rank must call it.
  Checkpoint gather(RunState state) const;
  /// Folder of the newest checkpoint that is written or was resumed from; empty: none.
  const std::string& last_good() const { return last_good_; }

 private:
  using Clock = std::chrono::steady_clock;

  std::optional<std::pair<std::string, Checkpoint>> newest() const;
  bool write(Checkpoint checkpoint, bool must);
  bool collect(bool must);
  /// Once the best candidate is written.
  void name_best();

  const Config& config_;
  const ProcessGroup& group_;
  const TrainingRun& run_;
  std::string run_folder_;
  ReportError report_error_;
  CheckpointFolder folder_;
  CheckpointWriter writer_;
  std::string last_good_;
  std::optional<BestCheckpoint> best_;       // that `best` names
  std::optional<BestCheckpoint> candidate_;  // a better one, not yet written
  bool told_not_measured_ = false;
  double judged_ = 0;                        // the value of which is_best() was true
  std::int64_t last_saved_ = -1;    // step of the last save, which may still be under way
  std::int64_t writing_step_ = -1;  // of the one that is
  Clock::time_point last_save_ = Clock::now();
};

}  // namespace tessera
