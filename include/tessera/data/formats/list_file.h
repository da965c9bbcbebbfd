#pragma once

#include <string>
#include <vector>

namespace tessera {

/// The items of a text file with one a line. Empty lines and such as begin with # are left out. Throws UserError where the
/// file cannot be read.
std::vector<std::string> read_list(const std::string& path);

}  // namespace tessera
