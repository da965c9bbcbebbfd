#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/config/file_path.h>
#include <tessera/data/sample.h>

namespace tessera {

/// Reads class names from a text file, one per line, ignoring empty lines at the end. Throws UserError if the file is missing, or
/// if there is an empty line between names. Warns of names that occur twice.
std::vector<std::string> read_class_names(const config::FilePath& path);

/// Sets a sample's label from a text, which is a class index (-1: no label) or a class name. If `classes` is empty, an
/// index has no upper limit, and a name is stored as Sample::class_name. `setting` is the name of the setting that the text comes
/// from ("label_keys"). Throws SampleError `bad_label` if the index is below -1, or if `classes` is not empty and lacks the index or name,
/// or has the name twice.
void set_label(const std::string& text, const std::vector<std::string>& classes, const char* setting, Sample& sample);

}  // namespace tessera
