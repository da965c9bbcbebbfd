#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/training/checkpoint/checkpoint.h"

namespace tessera {

/// Runs a shell command with `arguments` as $1, $2, ... and waits for it. Throws a UserError that begins with `setting` if the
/// command cannot be started or fails; if it fails, the message ends with `about`.
void run_shell_command(const std::string& setting, const std::string& command,
                       const std::vector<std::string>& arguments, const std::string& about);

/// Runs checkpoint.fetch_command, which copies checkpoints (folders step_N) into an empty temporary folder, and moves the newest
/// intact one into `folder`, the run's folder of checkpoints. Returns the checkpoint's new path and its content; nothing if the
/// command succeeded without copying anything, which means that nothing is stored yet. Throws UserError if the command fails or
/// copies no intact checkpoint.
std::optional<std::pair<std::string, Checkpoint>> fetch_checkpoint(const std::string& command,
                                                                   const std::string& run_name,
                                                                   const std::string& folder);

}  // namespace tessera
