#pragma once

#include <string>
#include <string_view>

namespace tessera::io {

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

}  // namespace tessera::io
