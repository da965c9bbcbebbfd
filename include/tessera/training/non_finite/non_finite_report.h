#pragma once

#include <string>
#include <utility>
#include <vector>

#include <tessera/training/step/step_runner.h>

namespace tessera {

/// The result of examining one step.
struct NonFiniteReport {
  std::int64_t step = 0;
  double loss = 0;  // of this rank
  std::vector<std::pair<std::string, double>> terms;
  double grad_norm = 0;                    // before clipping
  std::string findings;                    // the first non-finite values and the operator that produced them; empty: none
  std::vector<std::string> bad_weights;    // parameters and buffers that were not finite before the step
  std::vector<std::string> bad_gradients;  // parameters whose gradient is not finite
  std::vector<std::string> keys;           // keys of this rank's samples

  bool finite() const;
};

/// Computes step done + 1 (without the update) with a check after each operator, which is slow. Every rank must call it.
NonFiniteReport examine_step(StepRunner& runner, TrainingRun& run, std::int64_t done, double scale = 1.0);

/// Returns one line: the first finding.
std::string summary(const NonFiniteReport& report);
/// Returns several lines for a reader, including the samples.
std::string to_text(const NonFiniteReport& report);

/// `trainer --replay-step`: recomputes the step after a saved state, usually RUN/non_finite/step_N, which a run writes when a step is
/// not finite. Returns the reports of all ranks as text, the same on every rank, and whether everything was finite. Throws UserError
/// if `folder` is not a checkpoint, or one with different settings or a different number of ranks.
std::pair<std::string, bool> replay_step(const Config& config, const std::string& folder, const ProcessGroup& group);

}  // namespace tessera
