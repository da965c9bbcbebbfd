#pragma once

#include <functional>
#include <string>
#include <vector>

#include <tessera/bench/training_step.h>

namespace tessera::bench {

struct StepBenchSettings {
  std::vector<std::string> configurations;  // of trainer: their sections model, objective and optimizer count
  TrainingStepSettings step;
  bool phases = false;  // where the time goes, too
  int repeats = 9;
  double time_limit = 60;  // seconds per measurement
  std::function<void(const std::string&)> progress;
};

/// Median time of a part of the step.
struct PhaseCost {
  std::string phase;
  double seconds = 0;
};

/// One step on a batch that is there already: towers, loss, backward pass and update.
struct StepCost {
  std::string configuration;
  bool views_joined = true;  // views of one shape as one larger batch (DualEncoder::forward); false: one after another
  std::int64_t parameters = 0;
  double flops = 0;
  double seconds = 0;       // median
  std::int64_t memory = 0;  // bytes at the peak above weights, optimizer state and batch
  std::vector<PhaseCost> phases;  // in the step's order; empty: not asked for
};

struct StepBench {
  StepBenchSettings settings;
  std::string machine;
  /// By configuration; one with several views of a modality twice, joined and one by one.
  std::vector<StepCost> costs;
};

/// Measures each configuration on random pictures, texts and regions (synthetic_batch). Throws UserError for what is no
/// configuration, and for an objective with a teacher.
StepBench measure_steps(const StepBenchSettings& settings);

/// A table in Markdown; times beside the first row's.
std::string to_markdown(const StepBench& bench);
std::string to_json(const StepBench& bench);

}  // namespace tessera::bench
