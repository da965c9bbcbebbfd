#pragma once

#include <tessera/training/run/training_run.h>

namespace tessera {

/// Makes the run's folder (rank 0) and builds every rank's parts, once all ranks have the same configuration. Throws
/// UserError on every rank when one of them fails.
Parts build_parts_together(const Config& config, const ProcessGroup& group);

}  // namespace tessera
