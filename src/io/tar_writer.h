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

  /// Appends a regular file. `name` must be relative, with / between folders. A name of more than 100 bytes must have a / with at most 155
  /// bytes before that / and at most 100 bytes after that /.
  void add(const std::string& name, std::string_view content);
  void finish();

 private:
  std::string path_;
  AtomicFile file_;
};

}  // namespace tessera::io
