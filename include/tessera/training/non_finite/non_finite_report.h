#pragma once

#include <string>
#include <utility>
#include <vector>

#include <tessera/training/step/step_runner.h>

namespace tessera {

/// One step, looked at closely.
struct NonFiniteReport {
  std::int64_t step = 0;
  double loss = 0;  // this rank's
  std::vector<std::pair<std::string, double>> terms;
  double grad_norm = 0;                    // before clipping
  std::string findings;                    // the first values that are not finite, and where they arose; empty: none
  std::vector<std::string> bad_weights;    // parameters and buffers that were not finite before the step
  std::vector<std::string> bad_gradients;  // parameters whose gradient is not finite
  std::vector<std::string> keys;           // this rank's samples

  bool finite() const;
};

/// Computes step done + 1 (no update) with a test after each operator, as slow as that is. Every rank must call it.
NonFiniteReport examine_step(StepRunner& runner, TrainingRun& run, std::int64_t done, double scale = 1.0);

/// A line: what was found first.
std::string summary(const NonFiniteReport& report);
/// Several lines for a reader, samples included.
std::string to_text(const NonFiniteReport& report);

/// `trainer --replay-step`: computes again the step that follows a saved state, usually RUN/non_finite/step_N, which a
/// run writes when a step is not finite. Returns the reports of all ranks as text, the same on every rank, and whether
/// all was finite. Throws UserError: not a checkpoint, one of other settings, or of another number of ranks.
std::pair<std::string, bool> replay_step(const Config& config, const std::string& folder, const ProcessGroup& group);

}  // namespace tessera
