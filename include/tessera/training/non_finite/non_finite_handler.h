#pragma once

#include <string>

#include <tessera/training/checkpoint/checkpoint_keeper.h>
#include <tessera/training/log/training_monitor.h>
#include <tessera/training/step/step_runner.h>

namespace tessera {

/// What a run does about steps whose loss or gradient is not finite: says so, lists the samples in
/// FOLDER/non_finite.jsonl, saves the state that the step met in FOLDER/non_finite, and looks for the first bad value.
class NonFiniteHandler {
 public:
  /// The references must outlive it.
  NonFiniteHandler(const Config& config, const ProcessGroup& group, TrainingRun& run, StepRunner& runner,
                   NonFiniteGuard& guard, CheckpointKeeper& checkpoints, RunLog& log, const std::string& folder);

  /// Whether the run goes on after this step; `vain`: steps made since, which the step has halted. `state` is the run's:
  /// when it does not go on, that before the step; after a skipped step, that after it, with the step counted, and the next
  /// batch is the one that follows. Every rank must call it.
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
