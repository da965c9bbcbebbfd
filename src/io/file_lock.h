#pragma once

#include <memory>
#include <string>

namespace tessera::io {

/// A lock on a file that only one process can hold at a time, also across machines if their shared disk supports it. The kernel releases
/// the lock when the process ends, however it ends. The file stays; while the lock is held, the file names the holder.
class FileLock {
 public:
  /// Takes the lock on this file, creating the file if it does not exist. Returns null if another process or this one already
  /// holds the lock; `holder` then names it: "process 4711 on node3, since 2026-01-31 12:00:00 UTC". If the disk does not support
  /// locks, logs a warning and returns as if the lock were taken. Throws UserError if the file cannot be opened or created.
  static std::unique_ptr<FileLock> take(const std::string& path, std::string& holder);

  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  explicit FileLock(int descriptor) : descriptor_(descriptor) {}

  int descriptor_;
};

}  // namespace tessera::io
