#pragma once

#include <optional>
#include <string>
#include <utility>

#include <tessera/training/checkpoint/checkpoint.h>

namespace tessera {

/// Runs checkpoint.fetch_command, which brings checkpoints (folders step_N) into an empty folder beside those of the run, and
/// takes the newest whole one over into `folder`, the run's folder of checkpoints. Returns it with its place there; nothing when the
/// command came to a good end and brought none: nothing is stored yet. Throws UserError when the command fails, or what it
/// brought is no whole checkpoint.
std::optional<std::pair<std::string, Checkpoint>> fetch_checkpoint(const std::string& command,
                                                                   const std::string& run_name,
                                                                   const std::string& folder);

}  // namespace tessera
