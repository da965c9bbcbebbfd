#pragma once

#include <string>

namespace tessera {

/// Returns the project's version: "0.1.0".
std::string version();

/// Returns git's short hash of the commit that was built; "unknown" if the sources were not a git repository.
std::string commit();

/// Returns version and commit, for --version and for the records of runs: "Tessera 0.1.0 (c35a622)".
std::string version_line();

}  // namespace tessera
