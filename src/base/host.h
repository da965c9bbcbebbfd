#pragma once

#include <string>
#include <vector>

namespace tessera {

/// Returns this machine's name, for messages and file names; "unknown" if the system reports none.
std::string host_name();

/// Returns a text that no other running machine has, even one with the same name.
std::string machine_name();

/// Returns the folder of the program or library that contains Tessera's code; empty if the system does not report it.
std::string code_folder();

/// Joins the words of a command line, quoted so that a shell parses them back.
std::string shell_line(const std::vector<std::string>& words);

/// Returns the command line of this process, quoted for a shell; empty if the system does not report it.
std::string command_line();

}  // namespace tessera
