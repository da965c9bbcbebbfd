#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::io {

/// Opens a regular file for reading and returns its descriptor and its size. Throws UserError naming the path and the cause.
int open_regular_file(const std::string& path, std::uint64_t& size);

/// A regular file, mapped into memory for reading. No other process may shorten it while it is mapped.
class MappedFile {
 public:
  /// Throws UserError naming the path.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::string_view bytes() const { return {data_, size_}; }

 private:
  const char* data_ = nullptr;
  std::size_t size_ = 0;
};

/// A buffer on disk instead of in memory. All data is written first and read afterwards. The file has no name, so it disappears with this
/// object or with the process, even if the process is killed.
class ScratchFile {
 public:
  /// Creates the file in this folder, which is created if it does not exist; empty means the current folder. Throws UserError
  /// naming the folder.
  explicit ScratchFile(const std::string& folder);
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  /// Throws UserError naming the folder and the cause ("No space left on device").
  void append(const void* data, std::size_t size) { append({static_cast<const char*>(data), size}); }
  void append(std::string_view text);
  std::size_t size() const { return size_; }
  /// Maps the whole file into memory for as long as this object lives. Nothing can be appended afterwards.
  std::string_view bytes();

 private:
  std::string folder_;
  int descriptor_ = -1;
  std::size_t size_ = 0;
  const char* data_ = nullptr;
};

}  // namespace tessera::io
