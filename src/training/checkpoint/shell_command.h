#pragma once

#include <string>
#include <vector>

namespace tessera {

/// Runs a shell command with the given $1, $2, ... and waits for it. If it cannot be started or fails, throws a UserError that begins
/// with `setting`; `about` ends the message of a failed command.
void run_shell_command(const std::string& setting, const std::string& command,
                       const std::vector<std::string>& arguments, const std::string& about);

}  // namespace tessera
