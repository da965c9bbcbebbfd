#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace tessera::io {

/// The CRC-32 of each member of a zip archive, as the directory at its end has them, by the members' names without the
/// first folder ("data/0" of "archive/data/0"). Members for which none was made (0, as by torch.save with
/// set_crc32_options(False)) are left out. Throws UserError naming the path: no directory, as in a file that is cut off.
std::map<std::string, std::uint32_t> read_zip_checksums(const std::string& path);

}  // namespace tessera::io
