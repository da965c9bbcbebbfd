#pragma once

#include <string>
#include <utility>
#include <vector>

#include "src/training/step/step_runner.h"

namespace tessera {

/// The result of examining one step.
struct NonFiniteReport {
  std::int64_t step = 0;
  double loss = 0;  // this rank's loss
  std::vector<std::pair<std::string, double>> terms;
  double grad_norm = 0;                    // gradient norm before clipping
  std::string findings;                    // the first non-finite values, and the operator that produced them; may be empty
  std::vector<std::string> bad_weights;    // names of parameters and buffers that were not finite before the step
  std::vector<std::string> bad_gradients;  // names of parameters with a non-finite gradient
  std::vector<std::string> keys;           // keys of this rank's samples

  bool finite() const;
};

/// Computes the step that follows `done` steps, but not its update. Checks the result of each operator, so it is slow. Every rank must call
/// this function.
NonFiniteReport examine_step(StepRunner& runner, TrainingRun& run, std::int64_t done, double scale = 1.0);

/// Returns the first finding, as one line.
std::string summary(const NonFiniteReport& report);
/// Returns the whole report, including the samples, as several lines.
std::string to_text(const NonFiniteReport& report);

/// Implements `trainer --replay-step`: recomputes the step that follows the state saved in `folder`. `folder` is usually
/// RUN/non_finite/step_N, which a run writes when a step is not finite. Returns the reports of all ranks as text, the same on every rank,
/// and whether everything was finite. Throws UserError if `folder` is not a checkpoint, or if the checkpoint has different settings or a
/// different number of ranks.
std::pair<std::string, bool> replay_step(const Config& config, const std::string& folder, const ProcessGroup& group);

}  // namespace tessera
