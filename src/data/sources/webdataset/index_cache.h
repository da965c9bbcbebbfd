#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "src/io/tar.h"

namespace tessera {

/// Stores the indices of tar files for the next start. An index is valid as long as its tar has the same size and modification time. A
/// stored index that is damaged or has another version is made again. Several threads, processes and machines may use the same folder at
/// once, because the file of an index appears there only when it is complete.
class IndexCache {
 public:
  /// `setting` is where to store indices. "beside" means SHARD.tar.index next to the shard, or, if that cannot be written, tessera/index in
  /// the user's cache folder ($XDG_CACHE_HOME, ~/.cache). "off" means nowhere. Any other text is a folder, which is created if necessary.
  explicit IndexCache(std::string setting);

  using Make = std::function<io::TarIndex(const std::string& path)>;
  /// Returns the stored index, or calls `make` and stores its result. The index of a damaged tar is not stored. Neither is the index
  /// of a tar that changed within the last seconds, because another change might leave the same modification time. Throws what
  /// `make` throws; a failure to store the index is not an error.
  io::TarIndex index(const std::string& path, const Make& make = io::index_tar) const;

 private:
  std::string setting_;
  mutable std::atomic<bool> told_ = false;
};

}  // namespace tessera
