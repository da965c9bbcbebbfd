#pragma once

#include <string>
#include <vector>

namespace tessera {

/// Runs a shell command with `arguments` as $1, $2, ... and waits for it. Throws a UserError that begins with `setting` if the
/// command cannot be started or fails; if it fails, the message ends with `about`.
void run_shell_command(const std::string& setting, const std::string& command,
                       const std::vector<std::string>& arguments, const std::string& about);

}  // namespace tessera
