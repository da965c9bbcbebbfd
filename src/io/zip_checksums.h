#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace tessera::io {

/// Reads the CRC-32 of each member from the directory at the end of a zip archive. The keys of the result are the members' names without
/// their first folder ("data/0" for "archive/data/0"). Members without a checksum (0, as torch.save writes with set_crc32_options(False))
/// are left out. Throws UserError naming the path if there is no directory, as in a truncated file.
std::map<std::string, std::uint32_t> read_zip_checksums(const std::string& path);

}  // namespace tessera::io
