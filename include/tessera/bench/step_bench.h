#pragma once

#include <functional>
#include <string>
#include <vector>

#include <tessera/bench/training_step.h>
#include <tessera/measure/peak_flops.h>
#include <tessera/measure/profiler.h>

namespace tessera::bench {

struct StepBenchSettings {
  std::vector<std::string> configurations;  // names or files of the trainer; only model, objective and optimizer are used
  TrainingStepSettings step;
  bool phases = false;    // also measure the phases of a step
  bool recorded = false;  // also measure forward and backward pass as a CUDA graph
  int operators = 0;      // how many of the slowest operators or kernels to list
  std::string trace;      // file for a trace of the last configuration's step in Chrome's format; empty: none
  int repeats = 9;
  double time_limit = 60;  // seconds per measurement
  std::function<void(const std::string&)> progress;
};

/// The median time of a phase of the step.
struct PhaseCost {
  std::string phase;
  double seconds = 0;
};

/// The cost of one step on a batch that is already in memory: towers, loss, backward pass and update.
struct StepCost {
  std::string configuration;
  std::string variant;  // "", "views one by one" (instead of one larger batch in DualEncoder::forward), or "recorded"
  std::int64_t parameters = 0;
  double flops = 0;             // FLOPs of the model, without recomputation
  double seconds = 0;           // median
  double host_seconds = 0;      // median time until the call returns; the GPU may still be busy then
  std::int64_t memory = 0;      // peak bytes above weights, optimizer state and batch
  std::int64_t host_waits = 0;  // how often in a step the host waits for the GPU; 0 on the CPU
  std::vector<PhaseCost> phases;  // in the step's order, with the time that "reduce" adds last; empty if not requested
  std::vector<Profiler::Share> operators;  // shares of one step's time; empty if not requested
};

struct StepBench {
  StepBenchSettings settings;
  std::string machine;
  PeakFlops peak;  // the device's peak for these steps' arithmetic
  /// By configuration, each followed by its variants.
  std::vector<StepCost> costs;
};

/// Measures each configuration on random images, texts and regions (synthetic_batch). Throws UserError for an invalid
/// configuration.
StepBench measure_steps(const StepBenchSettings& settings);

/// Returns a Markdown table; times are also given relative to the first row.
std::string to_markdown(const StepBench& bench);
std::string to_json(const StepBench& bench);

}  // namespace tessera::bench
