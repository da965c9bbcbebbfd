#pragma once

#include <string>
#include <vector>

namespace tessera {

/// Class names out of a text file, one a line, empty lines at the end left out. Throws UserError: no such file, an
/// empty line between names, the same name twice.
std::vector<std::string> read_class_names(const std::string& path);

}  // namespace tessera
