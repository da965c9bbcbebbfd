#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::io {

inline constexpr std::size_t kBlock = 512;  // headers and data come in blocks of this size (POSIX.1-1988, ustar)

/// What the header of a tar member says.
struct TarHeader {
  std::string name;        // of extended headers: empty
  std::uint64_t size = 0;  // bytes that follow, without the filling of the last block
  bool extended = false;   // not a member, but told of the next one: its bytes go to TarHeaderReader::extend
  bool regular = false;    // a plain file
  bool continued = false;  // another header block follows (GNU's old sparse files): for TarHeaderReader::continues
};

/// Reads header blocks one after the other (old, ustar, GNU, PAX). Problems are returned as texts, empty = none.
class TarHeaderReader {
 public:
  /// `block` of kBlock bytes.
  std::string read(std::string_view block, TarHeader& out);
  /// The content of an extended header.
  std::string extend(std::string_view content);
  /// True if yet another block follows this one.
  static bool continues(std::string_view block);

 private:
  struct Extension {
    std::optional<std::string> name;
    std::optional<std::uint64_t> size;
    bool sparse = false;
  };
  bool parse_pax(std::string_view records);

  Extension next_;
  char type_ = 0;
};

/// A block of zeros ends an archive.
bool is_zero_block(std::string_view block);

/// "gzip", "zstd" or "bzip2" when a file begins as one of these; else null.
const char* compression_of(std::string_view start);

constexpr std::uint64_t kLongestExtension = 1 << 20;  // a longer extended header is damage, not a name

}  // namespace tessera::io
