#pragma once

#include <string>
#include <vector>

#include "src/training/run/training_run.h"
#include <tessera/training/config/config.h>

namespace tessera {

/// Returns warnings, one line each, about settings that are allowed but probably a mistake, such as a contrastive loss over a batch of one
/// or a micro-batch larger than the batch.
std::vector<std::string> setting_warnings(const TrainingRun& run, const Config& config, int ranks);

}  // namespace tessera
