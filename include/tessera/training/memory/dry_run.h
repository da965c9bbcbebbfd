#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/data/loading/training_examples.h>
#include <tessera/training/config/config.h>
#include <tessera/models/parameter_count.h>
#include <tessera/training/memory/memory_plan.h>
#include <tessera/training/run/run_evaluation.h>

namespace tessera {

/// What one step of a configuration costs.
struct DryRunReport {
  ParameterCount parameters;
  MemoryPlan memory;
  std::int64_t steps = 0;    // of the run; 0: not known, for they follow from data that cannot be read
  std::int64_t sources = 1;  // that give a batch each to an update
  std::string data;          // described; empty where they cannot be read
  std::vector<TrainingExample> examples;  // some of each data set; none of synthetic samples
  std::int64_t tasks = 0;    // of evaluation that were looked at
  std::vector<UnreadTask> unread_tasks;  // those whose data cannot be read here
  std::string synthetic;     // what the samples are where data or vocabulary cannot be read, and why; empty: real ones
  std::vector<std::string> warnings;  // what would stop the run or is hardly meant, a line each
};

/// Builds everything and foretells a step of the whole batch (plan_memory), as rank settings.rank of settings.ranks;
/// writes nothing. Data or a vocabulary that cannot be read is no error: synthetic samples take its place. Throws TaskMisfit
/// for an evaluation task that does not fit its data, as a run does when it begins.
DryRunReport dry_run(const Config& config, const PlanSettings& settings = {});

/// What it foretells, as lines: parameters, FLOPs, steps, memory.
std::string numbers_text(const DryRunReport& report, const Config& config);

/// The same with some of the captions, for the terminal.
std::string to_text(const DryRunReport& report, const Config& config);

}  // namespace tessera
