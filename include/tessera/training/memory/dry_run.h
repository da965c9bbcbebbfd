#pragma once

#include <cstdint>
#include <string>

#include <tessera/training/config/config.h>
#include <tessera/training/memory/memory_model.h>

namespace tessera {

/// What one step of a configuration costs.
struct DryRunReport {
  std::int64_t image_parameters = 0, text_parameters = 0, objective_parameters = 0;
  double forward_flops = 0, total_flops = 0;  // per sample; see FlopCounter for what is counted
  MemoryPlan memory;
  std::int64_t sources = 1;  // that give a batch each to an update
  std::int64_t samples = 0;  // of the pass that was run
  double seconds = 0;        // of it, forward and backward
  double loss = 0;
};

/// Builds everything, runs passes of a few samples of the data and works out what a step of the whole batch needs, as
/// rank settings.rank of settings.ranks; writes nothing. With training.micro_batch auto the plan is that of the largest
/// that fits, or of one sample at a time when none does.
DryRunReport measure_step(const Config& config, const PlanSettings& settings = {});

/// The measurements as lines for the terminal.
std::string to_text(const DryRunReport& cost, const Config& config);

}  // namespace tessera
