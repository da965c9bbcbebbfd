#pragma once

#include <memory>

#include "src/io/file_lock.h"
#include "src/training/run/training_run.h"

namespace tessera {

/// Checks that all ranks have the same configuration. Then rank 0 creates the run's folder and locks it. Throws UserError on every rank if
/// another trainer holds the lock or if one rank fails.
std::unique_ptr<io::FileLock> take_run_folder(const Config& config, const ProcessGroup& group);

/// Builds the run on every rank. Throws UserError on every rank if one of them fails.
TrainingRun build_on_all_ranks(const Config& config, const ProcessGroup& group);

}  // namespace tessera
