#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/measure/machine.h"
#include "src/measure/profiler.h"
#include "tools/bench/training_step.h"

namespace tessera::bench {

struct StepBenchSettings {
  std::vector<std::string> configurations;  // recipes or files, as in trainer --config; only their model, objective and optimizer are used
  TrainingStepSettings step;
  bool phases = false;    // whether to measure the phases of a step too
  bool recorded = false;  // whether to measure forward and backward pass as a CUDA graph too
  int operators = 0;      // how many of the slowest operators or kernels to list
  std::string trace;      // file for a trace of one step of the last configuration, in Chrome's format; empty: no trace
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
  std::string variant;  // empty, "views one by one" (views are not joined into a larger batch), or "recorded"
  std::int64_t parameters = 0;
  double flops = 0;             // FLOPs of the model, without recomputation
  double seconds = 0;           // median
  double host_seconds = 0;      // median time until the step's call returns; the GPU may still be busy then
  std::int64_t memory = 0;      // peak bytes in addition to weights, optimizer state and batch
  std::int64_t host_waits = 0;  // number of times per step that the host waits for the GPU; 0 on the CPU
  // in the order in which they run; empty if phases were not requested. With a backend, the last one is "reduce": the time that reducing
  // gradients adds to the step
  std::vector<PhaseCost> phases;
  std::vector<Profiler::Share> operators;  // the slowest operators with their time in one step; empty if not requested
};

struct StepBench {
  StepBenchSettings settings;
  std::string machine;
  PeakFlops peak;  // the device's peak rate for the number format of these steps
  /// The costs of all configurations. Each configuration's own cost comes directly before the costs of its variants.
  std::vector<StepCost> costs;
};

/// Measures each configuration on random images, texts and regions (see synthetic_batch()). Throws UserError for an invalid configuration.
StepBench measure_steps(const StepBenchSettings& settings);

/// Returns a Markdown table. Times are also given relative to the first row.
std::string to_markdown(const StepBench& bench);
std::string to_json(const StepBench& bench);

}  // namespace tessera::bench
