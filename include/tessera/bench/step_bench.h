#pragma once

#include <functional>
#include <string>
#include <vector>

#include <tessera/bench/training_step.h>
#include <tessera/measure/peak_flops.h>
#include <tessera/measure/profiler.h>

namespace tessera::bench {

struct StepBenchSettings {
  std::vector<std::string> configurations;  // of trainer: their sections model, objective and optimizer count
  TrainingStepSettings step;
  bool phases = false;    // where the time goes, too
  bool recorded = false;  // forward and backward pass as a CUDA graph, too
  int operators = 0;      // how many of the operators, or kernels, that take longest
  std::string trace;      // a step in Chrome's trace format, of the last configuration; empty: none
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
  std::string variant;  // "", "views one by one" instead of as one larger batch (DualEncoder::forward), "recorded"
  std::int64_t parameters = 0;
  double flops = 0;             // that the model takes, not counting what is computed a second time
  double seconds = 0;           // median
  double host_seconds = 0;      // median; until the call returns: the GPU may still be at work
  std::int64_t memory = 0;      // bytes at the peak above weights, optimizer state and batch
  std::int64_t host_waits = 0;  // how often in a step the host waits for the GPU; 0 on the CPU
  std::vector<PhaseCost> phases;  // in the step's order; "reduce" last: what it adds to the step; empty: not asked for
  std::vector<Profiler::Share> operators;  // of one step; empty: not asked for
};

struct StepBench {
  StepBenchSettings settings;
  std::string machine;
  PeakFlops peak;  // of the device in these steps' arithmetic
  /// By configuration, each followed by its variants.
  std::vector<StepCost> costs;
};

/// Measures each configuration on random pictures, texts and regions (synthetic_batch). Throws UserError for what is no
/// configuration, and for an objective with a teacher.
StepBench measure_steps(const StepBenchSettings& settings);

/// A table in Markdown; times beside the first row's.
std::string to_markdown(const StepBench& bench);
std::string to_json(const StepBench& bench);

}  // namespace tessera::bench
