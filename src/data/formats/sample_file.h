#pragma once

#include <string>

namespace tessera {

/// The bytes of a file that belongs to one sample. A file that is not there is a SampleError of reason `missing`, one
/// that is a folder or may not be read `unreadable`: that sample is bad. A disk or network that fails is a UserError:
/// the source is, and reading again may help.
std::string read_sample_file(const std::string& path, const char* missing);

}  // namespace tessera
