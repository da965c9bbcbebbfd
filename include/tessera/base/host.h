#pragma once

#include <string>
#include <vector>

namespace tessera {

/// This machine's name, for messages and file names; "unknown" when the system tells none.
std::string host_name();

/// The words of a command line as a shell takes them again.
std::string shell_line(const std::vector<std::string>& words);

/// How this process was started; empty when the system does not tell.
std::string command_line();

}  // namespace tessera
