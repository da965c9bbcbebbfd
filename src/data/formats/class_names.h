#pragma once

#include <string>
#include <vector>

#include <tessera/config/file_path.h>

namespace tessera {

/// Reads class names from a text file, one per line, ignoring empty lines at the end. Throws UserError if the file is missing, or
/// if there is an empty line between names. Warns of names that occur twice.
std::vector<std::string> read_class_names(const config::FilePath& path);

/// Returns the items of a text file with one item per line. Empty lines and lines that start with # are skipped. Throws UserError if the file
/// cannot be read.
std::vector<std::string> read_list(const std::string& path);

/// Returns the template with its first {} replaced by the class name.
std::string fill_template(std::string text, const std::string& name);

}  // namespace tessera
