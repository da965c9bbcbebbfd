#pragma once

#include <string>
#include <vector>

#include <tessera/training/config/config.h>
#include <tessera/training/run/training_run.h>

namespace tessera {

/// What is allowed but hardly meant, a line each: a contrast over a batch of one, a micro-batch above the batch.
std::vector<std::string> setting_warnings(const TrainingRun& run, const Config& config, int ranks);

}  // namespace tessera
