#pragma once

#include <optional>
#include <string>

#include "src/training/run/training_run.h"

namespace tessera {

/// Returns a warning if the disk of the run's folder has no room for the run's checkpoints; nothing if it has, or if that is not known.
std::optional<std::string> lack_of_room(const TrainingRun& run, const Config& config, int ranks);

}  // namespace tessera
