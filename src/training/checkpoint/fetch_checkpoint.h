#pragma once

#include <optional>
#include <string>
#include <utility>

#include "src/training/checkpoint/checkpoint.h"

namespace tessera {

/// Runs checkpoint.fetch_command, which copies checkpoints (folders step_N) into an empty temporary folder, and moves the newest
/// intact one into `folder`, the run's folder of checkpoints. Returns the checkpoint's new path and its content; nothing if the
/// command succeeded without copying anything, which means that nothing is stored yet. Throws UserError if the command fails or
/// copies no intact checkpoint.
std::optional<std::pair<std::string, Checkpoint>> fetch_checkpoint(const std::string& command,
                                                                   const std::string& run_name,
                                                                   const std::string& folder);

}  // namespace tessera
