#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/data/loading/training_examples.h>
#include <tessera/training/config/config.h>
#include <tessera/training/memory/memory_plan.h>

namespace tessera {

/// What one step of a configuration costs.
struct DryRunReport {
  std::int64_t image_parameters = 0, text_parameters = 0, objective_parameters = 0;
  MemoryPlan memory;
  std::int64_t steps = 0;    // of the run; 0: not known, for they follow from data that cannot be read
  std::int64_t sources = 1;  // that give a batch each to an update
  std::string data;          // described; empty where they cannot be read
  std::vector<TrainingExample> examples;  // some of each data set; none of synthetic samples
  std::string synthetic;     // what the samples are where data or vocabulary cannot be read, and why; empty: real ones
};

/// Builds everything and foretells a step of the whole batch (plan_memory), as rank settings.rank of settings.ranks;
/// writes nothing. Data or a vocabulary that cannot be read is no error: synthetic samples take its place.
DryRunReport dry_run(const Config& config, const PlanSettings& settings = {});

/// The report as lines for the terminal.
std::string to_text(const DryRunReport& report, const Config& config);

}  // namespace tessera
