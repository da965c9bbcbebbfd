#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include <tessera/data/loading/loader.h>

namespace tessera {

/// The time and memory that a call of read_through() took.
struct ReadReport {
  std::int64_t samples = 0;
  double seconds = 0;
  LoaderStatistics statistics;
  /// The process's resident memory in bytes after 10, 20, ..., 100 percent of the batches were read.
  std::vector<std::pair<int, std::int64_t>> resident_bytes;
  std::int64_t resident_at_end = 0;
};

/// Reads all batches of the first `epochs` epochs. `progress` receives the number of batches read so far. Throws as
/// Loader::next() does.
ReadReport read_through(Loader& loader, std::int64_t epochs, const std::function<void(std::int64_t done)>& progress);

}  // namespace tessera
