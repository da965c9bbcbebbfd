#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/config/file_path.h>
#include <tessera/data/sample.h>

namespace tessera {

/// Class names out of a text file, one a line, empty lines at the end left out. Throws UserError: no such file, an
/// empty line between names, the same name twice.
std::vector<std::string> read_class_names(const config::FilePath& path);

/// The class that a text means: its index, or its name among `classes`. Where that is empty any index will do, and a name
/// stays one: Sample::class_name. `setting` says where the text is from ("label_keys"). Throws SampleError `bad_label`.
void set_label(const std::string& text, const std::vector<std::string>& classes, const char* setting, Sample& sample);

}  // namespace tessera
