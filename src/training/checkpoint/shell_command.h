#pragma once

#include <string>
#include <vector>

namespace tessera {

/// Runs a shell command with the given $1, $2, ... and waits for it. Throws UserError that begins with `setting` when it cannot
/// be started or fails; `about` ends the line.
void run_shell_command(const std::string& setting, const std::string& command,
                       const std::vector<std::string>& arguments, const std::string& about);

}  // namespace tessera
