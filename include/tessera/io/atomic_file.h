#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tessera::io {

/// A file that appears under its name only when complete. It is written to PATH.tmp.PID, fsynced and renamed, and the folder is fsynced.
/// Without commit(), the temporary file is removed. Missing folders of the path are created. If PATH is a symbolic link, the file that it
/// points to is replaced. All errors are UserErrors that name the path and the cause ("No space left on device"); a folder, a device or a
/// pipe as PATH is an error, too.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, std::size_t size);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void commit();

 private:
  [[noreturn]] void fail(const char* action);
  std::string path_;
  std::string temporary_;
  int descriptor_ = -1;
};

/// Writes `content` to a file with an AtomicFile.
void write_file(const std::string& path, std::string_view content);

/// Appends `text` to a file that was opened for appending, usually in one write(2). If it cannot be written completely (for example,
/// because the disk is full), removes the written part again, sets errno and returns false.
bool append(int descriptor, std::string_view text);

/// Returns the whole file as bytes. Throws UserError naming the path.
std::string read_file(const std::string& path);

}  // namespace tessera::io
