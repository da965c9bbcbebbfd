#pragma once

#include <atomic>
#include <functional>
#include <string>

#include <tessera/io/tar.h>

namespace tessera {

/// Keeps the indices of tar files for the next start. An index counts as long as its tar has the size and the time of
/// change that it had; one that is damaged or of another version is made anew. Several threads, processes and machines
/// may use one place at once: files appear whole.
class IndexCache {
 public:
  /// "beside": SHARD.tar.index beside the shard, or where that cannot be written in tessera/index of the user's cache
  /// folder ($XDG_CACHE_HOME, ~/.cache); "off"; else a folder, made when there is none.
  explicit IndexCache(std::string setting);

  using Make = std::function<io::TarIndex(const std::string& path)>;
  /// The kept index, or what `make` gives, which is kept then. A tar that changed within the last seconds or is damaged
  /// is not kept: its time could not tell the next change. Throws as `make`; never because nothing can be kept.
  io::TarIndex index(const std::string& path, const Make& make = io::index_tar) const;

 private:
  std::string setting_;
  mutable std::atomic<bool> told_ = false;
};

}  // namespace tessera
