#pragma once

#include <tessera/training/run/training_run.h>

namespace tessera {

/// Makes the run's folder (rank 0) and builds every rank's parts, once all ranks have the same configuration. Throws
/// UserError on every rank when one of them fails.
TrainingRun build_on_all_ranks(const Config& config, const ProcessGroup& group);

}  // namespace tessera
