#pragma once

#include <string>

namespace tessera {

/// The version of the project: "0.1.0".
std::string version();

/// The commit that this build was made from, git's short hash; "unknown" where the sources lay in no repository of their own.
std::string commit();

/// Both, for --version and what runs record: "Tessera 0.1.0 (c35a622)".
std::string version_line();

}  // namespace tessera
