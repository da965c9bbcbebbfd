#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tessera::io {

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
  void append(const void* data, std::size_t size);
  void append(std::string_view text) { append(text.data(), text.size()); }
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
