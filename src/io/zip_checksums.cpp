#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <string_view>

#include "src/io/tar.h"
#include "src/io/zip_checksums.h"
#include <tessera/base/error.h>

namespace tessera::io {
namespace {

static_assert(std::endian::native == std::endian::little, "zip archives are little-endian");

constexpr std::string_view kEnd = "PK\x05\x06", kEnd64 = "PK\x06\x06", kLocator64 = "PK\x06\x07", kEntry = "PK\x01\x02";
constexpr std::uint64_t kEndBytes = 22, kEnd64Bytes = 56, kLocatorBytes = 20, kEntryBytes = 46, kLongestComment = 65535;
constexpr std::uint64_t kLargestDirectory = 256 << 20;

/// Returns the number at offset `place`, or 0 if `bytes` ends before the end of the number.
template <class Number>
std::uint64_t number_at(std::string_view bytes, std::uint64_t place) {
  Number out = 0;
  if (place + sizeof(out) <= bytes.size()) std::memcpy(&out, bytes.data() + place, sizeof(out));
  return out;
}

struct Range {
  std::uint64_t begin, size;
};

/// Finds the archive's directory through the zip64 record if there is one, otherwise through the record at the archive's end.
std::optional<Range> find_directory(const RandomAccessFile& file) {
  const std::uint64_t tail_bytes = std::min(file.size(), kEndBytes + kLongestComment + kLocatorBytes);
  const std::string tail = file.read(file.size() - tail_bytes, tail_bytes);
  const std::size_t end = tail.rfind(kEnd);
  if (end == std::string::npos || end + kEndBytes > tail.size()) return std::nullopt;
  if (end >= kLocatorBytes && std::string_view(tail).substr(end - kLocatorBytes).starts_with(kLocator64)) {
    const std::string large = file.read(number_at<std::uint64_t>(tail, end - kLocatorBytes + 8), kEnd64Bytes);
    if (large.size() < kEnd64Bytes || !large.starts_with(kEnd64)) return std::nullopt;
    return Range{number_at<std::uint64_t>(large, 48), number_at<std::uint64_t>(large, 40)};
  }
  return Range{number_at<std::uint32_t>(tail, end + 16), number_at<std::uint32_t>(tail, end + 12)};
}

}  // namespace

std::map<std::string, std::uint32_t> read_zip_checksums(const std::string& path) {
  const RandomAccessFile file(path);
  const std::optional<Range> place = find_directory(file);
  const bool inside = place && place->size <= std::min(file.size(), kLargestDirectory) &&
                      place->begin <= file.size() - place->size;
  if (!inside)
    user_error(path, ": cut off, or not a PyTorch file: it begins like a zip archive, but the list of contents at the "
                     "end is missing");
  const std::string directory = file.read(place->begin, place->size);
  std::map<std::string, std::uint32_t> out;
  for (std::string_view rest = directory; rest.size() >= kEntryBytes && rest.starts_with(kEntry);) {
    const std::uint64_t name_bytes = number_at<std::uint16_t>(rest, 28);
    const std::string_view name = rest.substr(kEntryBytes, name_bytes);
    const auto checksum = static_cast<std::uint32_t>(number_at<std::uint32_t>(rest, 16));
    if (checksum != 0) out.emplace(name.substr(name.find('/') + 1), checksum);
    const std::uint64_t whole =
        kEntryBytes + name_bytes + number_at<std::uint16_t>(rest, 30) + number_at<std::uint16_t>(rest, 32);
    rest.remove_prefix(std::min<std::uint64_t>(whole, rest.size()));
  }
  return out;
}

}  // namespace tessera::io
