#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "src/training/checkpoint/checkpoint_keeper.h"
#include "src/training/log/training_monitor.h"
#include "src/training/step/step_runner.h"

namespace tessera {

/// While an object of this class exists, it checks the results of all operators. It records the first operator that produces a NaN
/// from inputs without NaN, and the first that produces an infinity from finite inputs. Checking makes every operator slow, so use
/// it only to examine a single step.
class AnomalyDetector {
 public:
  /// `names` maps names to parameters. Reports use these names to say where in the model an operator is.
  explicit AnomalyDetector(const std::map<std::string, at::Tensor>& names);
  ~AnomalyDetector();
  AnomalyDetector(const AnomalyDetector&) = delete;
  AnomalyDetector& operator=(const AnomalyDetector&) = delete;

  /// Returns the findings, such as "aten::log gave infinity (3 of 64 values, [8, 8] Float) in the forward pass, after visual.proj;
  /// aten::sub gave NaN (...) ...". Returns an empty string if everything was finite.
  std::string report() const;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

/// Handles steps with a non-finite loss or gradient: reports them, lists their samples in FOLDER/non_finite.jsonl, saves the state
/// before the step in FOLDER/non_finite, and searches for the first non-finite value.
class NonFiniteHandler {
 public:
  /// All arguments except `folder` must outlive this object.
  NonFiniteHandler(const Config& config, const ProcessGroup& group, TrainingRun& run, StepRunner& runner,
                   NonFiniteGuard& guard, CheckpointKeeper& checkpoints, RunLog& log, const std::string& folder);

  /// Returns true if the run continues after this step. If this step is not finite, the `later` steps that were already computed have no
  /// effect. `state` is the run's state. If the run stops, this function sets `state` to the state before the step. If the step is skipped,
  /// it sets `state` to the state after the step: the step is counted, and the data position is that of the next batch. Every rank must
  /// call this function.
  bool go_on_after(const TrainedStep& step, std::int64_t later, RunState& state);

 private:
  void examine(const TrainedStep& step, RunState& state);
  void list_samples(const TrainedStep& step, const std::string& values);

  const Config& config_;
  const ProcessGroup& group_;
  TrainingRun& run_;
  StepRunner& runner_;
  NonFiniteGuard& guard_;
  CheckpointKeeper& checkpoints_;
  RunLog& log_;
  std::string folder_;
  std::int64_t examined_ = 0;  // number of steps examined in this session
  std::int64_t skipped_in_a_row_ = 0;
};

/// Implements `trainer --replay-step`: recomputes the step that follows the state saved in `folder`, without its update, and checks the
/// result of each operator. `folder` is usually RUN/non_finite/step_N, which a run writes when a step is not finite. Returns the reports of
/// all ranks as text, the same on every rank, and whether everything was finite. Throws UserError if `folder` is not a checkpoint, or if
/// the checkpoint has different settings or a different number of ranks.
std::pair<std::string, bool> replay_step(const Config& config, const std::string& folder, const ProcessGroup& group);

}  // namespace tessera
