#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <tessera/io/atomic_file.h>

namespace tessera::io {

/// Writes an uncompressed tar (POSIX ustar) without times and owners, so that equal members make equal files. The file appears
/// under its name when finish() is called (see AtomicFile). Throws UserError naming the path.
class TarWriter {
 public:
  explicit TarWriter(const std::string& path);

  /// Appends a regular file. `name` is relative, with / between folders. It has at most 100 bytes, or it can be split at a / with at
  /// most 155 bytes before it and 100 after it.
  void add(const std::string& name, std::string_view content);
  void finish();

 private:
  std::string path_;
  AtomicFile file_;
};

}  // namespace tessera::io
