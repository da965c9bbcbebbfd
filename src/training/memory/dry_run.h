#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/data/loading/training_examples.h"
#include "src/models/parameter_count.h"
#include "src/training/memory/memory_plan.h"
#include "src/training/run/run_evaluation.h"
#include <tessera/training/config/config.h>

namespace tessera {

/// The predicted cost of one step of a configuration.
struct DryRunReport {
  ParameterCount parameters;
  MemoryPlan memory;
  std::int64_t steps = 0;    // number of steps of the run; 0 if it depends on data that cannot be read
  std::int64_t sources = 1;  // number of sources, each of which adds a batch to every update
  std::string data;          // a description of the data; empty if it cannot be read
  std::vector<TrainingExample> examples;  // some examples of each data set; none if the samples are synthetic
  std::int64_t tasks = 0;    // number of evaluation tasks that were checked
  std::vector<UnreadTask> unread_tasks;  // tasks whose data cannot be read on this machine
  std::string synthetic;     // describes the synthetic samples and why they are used; empty if data and vocabulary can be read
  std::vector<std::string> warnings;  // problems that would stop the run, and likely mistakes; one line each
};

/// Builds the run as the rank `settings.rank` of a job with `settings.ranks` ranks would build it, and predicts the cost of a step on the
/// whole batch (plan_memory). Writes no files. If data or the vocabulary cannot be read, synthetic samples are used instead. Like a
/// starting run, throws TaskMisfit if an evaluation task does not fit its data.
DryRunReport dry_run(const Config& config, const PlanSettings& settings = {});

/// Returns the predictions as lines: parameters, FLOPs, steps, memory.
std::string numbers_text(const DryRunReport& report, const Config& config);

/// Returns the predictions and some of the captions as text for the terminal.
std::string to_text(const DryRunReport& report, const Config& config);

}  // namespace tessera
