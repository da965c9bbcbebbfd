#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/training/run/training_run.h"
#include <tessera/training/config/config.h>

namespace tessera {

/// Returns a warning if settings count more steps than the run has. Runs whose length is not known yet get none.
std::optional<std::string> longer_than_run(const Config& config);

/// Returns warnings, one line each, about settings that are allowed but probably a mistake, such as a contrastive loss over a batch of one
/// or a micro-batch larger than the batch.
std::vector<std::string> setting_warnings(const TrainingRun& run, const Config& config, int ranks);

}  // namespace tessera
