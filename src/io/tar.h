#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/io/atomic_file.h>

namespace tessera::io {

/// A regular file inside a tar. Its bytes are [offset, offset + size) of the archive.
struct TarMember {
  std::string name;
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
};

struct TarIndex {
  std::vector<TarMember> members;  // the complete members, in order
  std::string problem;             // the problem at `problem_offset`; empty if the archive is intact
  std::uint64_t problem_offset = 0;
  std::string cut_member;  // the truncated member, if known
  bool joined = false;        // whether the file is several archives, one after the other (cat a.tar b.tar)
  std::uint64_t ignored = 0;  // bytes after the end of the archive that are neither zero nor another archive
};

/// Indexes the members of an uncompressed tar (old, ustar, GNU with long names, PAX) for random access, reading only headers. Reads on
/// after the end of an archive, because another one may follow. Skips links, folders and sparse files. If the archive is damaged, returns
/// the members before the damage and does not throw. Throws UserError naming the path if the file cannot be opened or is not an
/// uncompressed tar.
TarIndex index_tar(const std::string& path);

/// A file that several threads may read at the same time, at any offset.
class RandomAccessFile {
 public:
  /// Opens the file. Throws UserError naming the path and the cause.
  explicit RandomAccessFile(const std::string& path);
  ~RandomAccessFile();
  RandomAccessFile(const RandomAccessFile&) = delete;
  RandomAccessFile& operator=(const RandomAccessFile&) = delete;

  std::uint64_t size() const { return size_; }
  /// Returns `size` bytes from `offset` on; fewer only if the file ends earlier. Throws UserError if reading fails.
  std::string read(std::uint64_t offset, std::uint64_t size) const;
  /// Reads exactly `size` bytes from `offset` on into `out`. Throws UserError if reading fails or the file ends earlier.
  void read(std::uint64_t offset, void* out, std::uint64_t size) const;

 private:
  std::uint64_t read_up_to(std::uint64_t offset, char* out, std::uint64_t size) const;
  std::string path_;
  std::uint64_t size_ = 0;
  int descriptor_;
};

/// Writes an uncompressed tar (POSIX ustar) without times and owners, so that equal members make equal files. The file appears
/// under its name when finish() is called (see AtomicFile). Throws UserError naming the path.
class TarWriter {
 public:
  explicit TarWriter(const std::string& path);

  /// Appends a regular file. `name` must be relative, with / between folders. A name of more than 100 bytes must have a / with at most 155
  /// bytes before that / and at most 100 bytes after that /.
  void add(const std::string& name, std::string_view content);
  void finish();

 private:
  std::string path_;
  AtomicFile file_;
};

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
