#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::io {

/// A regular file inside a tar: its bytes are [offset, offset + size) of the archive.
struct TarMember {
  std::string name;
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
};

struct TarIndex {
  std::vector<TarMember> members;  // complete ones, in order
  std::string problem;             // empty: the archive is whole; else what is wrong from `problem_offset` on
  std::uint64_t problem_offset = 0;
  std::string cut_member;  // the member whose bytes are not all there, when it is known
};

/// Reads the headers of a plain tar (old, ustar, GNU with long names, PAX), which gives random access to its members.
/// Links, folders and sparse files are passed over. Damage does not throw: what comes before it is returned. Throws
/// UserError naming the path when the file cannot be opened, or is no tar (compressed, or something else).
TarIndex index_tar(const std::string& path);

/// A file that several threads may read from at any place.
class RandomAccessFile {
 public:
  /// Throws UserError naming the path and the cause.
  explicit RandomAccessFile(const std::string& path);
  ~RandomAccessFile();
  RandomAccessFile(const RandomAccessFile&) = delete;
  RandomAccessFile& operator=(const RandomAccessFile&) = delete;

  std::uint64_t size() const { return size_; }
  /// Exactly these bytes; fewer only when the file ends before. Throws UserError when reading fails.
  std::string read(std::uint64_t offset, std::uint64_t size) const;

 private:
  std::string path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

}  // namespace tessera::io
