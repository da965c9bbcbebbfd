#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::io {

inline constexpr std::size_t kBlock = 512;  // size in bytes of the blocks of which headers and data consist (POSIX.1-1988, ustar)

/// The parsed header of a tar member.
struct TarHeader {
  std::string name;        // empty for an extended header
  std::uint64_t size = 0;  // size in bytes of the content that follows, without the padding of the last block
  bool extended = false;   // true for an extended header, whose content describes the next member; see TarHeaderReader::extend
  bool regular = false;    // whether the member is a plain file
  bool continued = false;  // whether another header block follows (GNU's old sparse files); see TarHeaderReader::continues
};

/// Reads header blocks one after the other (old, ustar, GNU, PAX). Methods return a description of the problem; empty means none.
class TarHeaderReader {
 public:
  /// Parses a header; `block` has kBlock bytes.
  std::string read(std::string_view block, TarHeader& out);
  /// Parses the content of an extended header and applies it to the next member.
  std::string extend(std::string_view content);
  /// Returns true if another header block follows this continuation block.
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

/// Describes a file whose first block, which may be shorter than kBlock, is not a tar header. Returns "" if it may be the start of one.
std::string not_a_tar(std::string_view block);

/// Returns true if the block has only zeros, which ends an archive.
bool is_zero_block(std::string_view block);

/// Returns "gzip", "zstd" or "bzip2" if a file begins like one of these formats, otherwise nullptr.
const char* compression_of(std::string_view start);

constexpr std::uint64_t kLongestExtension = 1 << 20;  // in bytes; a longer extended header counts as damaged

}  // namespace tessera::io
