#pragma once

#include <string>

#include <tessera/training/checkpoint/checkpoint.h>
#include <tessera/training/run/training_run.h>

namespace tessera {

/// Puts weights, optimizer, averages and this rank's data position of a checkpoint into the run. Throws UserError naming
/// the checkpoint when it was trained with other settings (those that differ are named) or another vocabulary. A
/// configuration whose training.micro_batch is `auto` takes the checkpoint's.
void apply_checkpoint(TrainingRun& run, Config& config, const ProcessGroup& group, const Checkpoint& checkpoint,
                      const std::string& folder);

}  // namespace tessera
