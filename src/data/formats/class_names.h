#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/config/file_path.h>

namespace tessera {

/// Class names out of a text file, one a line, empty lines at the end left out. Throws UserError: no such file, an
/// empty line between names, the same name twice.
std::vector<std::string> read_class_names(const config::FilePath& path);

/// The class that a text means: its index, or its name among `classes` (which may be empty: any index will do). Throws
/// SampleError `bad_label`.
std::int64_t parse_label(const std::string& text, const std::vector<std::string>& classes);

}  // namespace tessera
