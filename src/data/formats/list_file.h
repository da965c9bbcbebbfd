#pragma once

#include <string>
#include <vector>

namespace tessera {

/// Returns the items of a text file with one item per line. Empty lines and lines that start with # are skipped. Throws
/// UserError if the file cannot be read.
std::vector<std::string> read_list(const std::string& path);

}  // namespace tessera
