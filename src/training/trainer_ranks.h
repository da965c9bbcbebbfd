#pragma once

#include <memory>

#include <tessera/io/file_lock.h>
#include <tessera/training/run/training_run.h>

namespace tessera {

/// Makes the run's folder and takes its lock on rank 0, once all ranks have the same configuration. Throws UserError on every
/// rank when another trainer holds the lock, or one of them fails.
std::unique_ptr<io::FileLock> take_run_folder(const Config& config, const ProcessGroup& group);

/// Builds every rank's parts. Throws UserError on every rank when one of them fails.
TrainingRun build_on_all_ranks(const Config& config, const ProcessGroup& group);

}  // namespace tessera
