#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tessera::io {

/// Bytes that are written first and read afterwards, on a disk and not in memory: a file without a name, which is gone
/// with this object or the process, whatever ends it.
class ScratchFile {
 public:
  /// On the disk of this folder, which is made if it does not exist; empty: the current one. Throws UserError naming it.
  explicit ScratchFile(const std::string& folder);
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  /// Throws UserError naming the folder and the cause ("No space left on device").
  void append(const void* data, std::size_t size);
  void append(std::string_view text) { append(text.data(), text.size()); }
  std::size_t size() const { return size_; }
  /// All of it, mapped into memory for as long as this object lives; nothing can be appended from then on.
  std::string_view bytes();

 private:
  std::string folder_;
  int descriptor_ = -1;
  std::size_t size_ = 0;
  const char* data_ = nullptr;
};

}  // namespace tessera::io
