#pragma once

#include <memory>
#include <string>

namespace tessera::io {

/// A lock on a file that one process holds at a time, over machines too where the disk they share passes locks on. The
/// kernel releases it when the process ends, however it ends. The file stays; while the lock is held it says who holds it.
class FileLock {
 public:
  /// Takes the lock of this file, which is made when it is not there. Null when it is held already, by another process or by
  /// this one; `holder` then says by whom: "process 4711 on node3, since 2026-01-31 12:00:00 UTC". A disk that knows no locks
  /// is a warning, and the lock counts as taken. Throws UserError when the file cannot be opened or made.
  static std::unique_ptr<FileLock> take(const std::string& path, std::string& holder);

  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  explicit FileLock(int descriptor) : descriptor_(descriptor) {}

  int descriptor_;
};

}  // namespace tessera::io
