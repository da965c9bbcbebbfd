#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/config/file_path.h>
#include <tessera/data/sample.h>

namespace tessera {

/// Reads class names from a text file, one per line, ignoring empty lines at the end. Throws UserError if the file is missing,
/// if there is an empty line between names, or if a name occurs twice.
std::vector<std::string> read_class_names(const config::FilePath& path);

/// Sets a sample's label from a text: a class index, or a name in `classes`. If `classes` is empty, any index is allowed, and
/// a name is stored as Sample::class_name. `setting` names the setting that the text comes from ("label_keys"). Throws
/// SampleError `bad_label`.
void set_label(const std::string& text, const std::vector<std::string>& classes, const char* setting, Sample& sample);

}  // namespace tessera
