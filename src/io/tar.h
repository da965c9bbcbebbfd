#pragma once

#include <cstdint>
#include <string>
#include <vector>

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
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

}  // namespace tessera::io
