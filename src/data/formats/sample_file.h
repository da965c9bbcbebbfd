#pragma once

#include <string>

namespace tessera {

/// Returns the bytes of a file that belongs to one sample. If only this sample is bad, throws SampleError: with the reason
/// `missing` if the file does not exist, or with "unreadable" if the file is a folder or permission is denied. Throws UserError
/// if the disk or the network fails, because this affects the whole source and reading again may help.
std::string read_sample_file(const std::string& path, const char* missing);

}  // namespace tessera
