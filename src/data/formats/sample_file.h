#pragma once

#include <string>

namespace tessera {

/// Returns the bytes of a file that belongs to one sample. Throws SampleError, as only this sample is bad, with reason `missing`
/// if the file does not exist, or `unreadable` if it is a folder or permission is denied. Throws UserError if the disk or the
/// network fails, as the whole source is affected and reading again may help.
std::string read_sample_file(const std::string& path, const char* missing);

}  // namespace tessera
