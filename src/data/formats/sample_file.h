#pragma once

#include <cstdint>
#include <string>

namespace tessera {

/// Returns the bytes of a file that belongs to one sample. If only this sample is bad, throws SampleError: with the reason
/// `missing` if the file does not exist, or with "unreadable" if the file is a folder or permission is denied. Throws UserError
/// if the disk or the network fails, because this affects the whole source and reading again may help.
std::string read_sample_file(const std::string& path, const char* missing);

/// Returns a number for ImageIds, which is the same for all ways to write a file's path (a.png, ./a.png, /data/a.png).
std::uint64_t file_id(const std::string& path);

}  // namespace tessera
