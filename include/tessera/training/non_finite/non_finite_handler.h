#pragma once

#include <string>

#include <tessera/training/checkpoint/checkpoint_keeper.h>
#include <tessera/training/log/training_monitor.h>
#include <tessera/training/step/step_runner.h>

namespace tessera {

/// Handles steps with a non-finite loss or gradient: reports them, lists the samples in FOLDER/non_finite.jsonl, saves the state
/// before the step in FOLDER/non_finite, and searches for the first bad value.
class NonFiniteHandler {
 public:
  /// The references must outlive this object.
  NonFiniteHandler(const Config& config, const ProcessGroup& group, TrainingRun& run, StepRunner& runner,
                   NonFiniteGuard& guard, CheckpointKeeper& checkpoints, RunLog& log, const std::string& folder);

  /// Returns true if the run continues after this step. `vain` is the number of later steps that were computed without effect
  /// because of it. Sets `state`, the run's state: if the run stops, to the state before the step; if the step is skipped, to the
  /// state after it, with the step counted and the data positioned at the next batch. Every rank must call it.
  bool go_on_after(const TrainedStep& step, std::int64_t vain, RunState& state);

 private:
  void examine(const TrainedStep& step, RunState& state);
  std::string keys_of_all_ranks(const std::vector<std::string>& own) const;
  void list_samples(const TrainedStep& step, const std::string& values, const std::string& keys);

  const Config& config_;
  const ProcessGroup& group_;
  TrainingRun& run_;
  StepRunner& runner_;
  NonFiniteGuard& guard_;
  CheckpointKeeper& checkpoints_;
  RunLog& log_;
  std::string folder_;
  std::int64_t examined_ = 0;  // steps, in this session
  std::int64_t skipped_in_a_row_ = 0;
};

}  // namespace tessera
