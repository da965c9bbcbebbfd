#pragma once

#include <cstdint>

namespace tessera {

/// The samples of an epoch's order that a process reads: entries index, index + count, index + 2 count, ...
struct RankSlice {
  int index = 0;
  int count = 1;
};

/// Where the next batch starts: `cursor` samples into the order of `epoch`, counted over all ranks (and, for a mixture with
/// mode accumulate, over all components).
struct DataPosition {
  std::int64_t epoch = 0;
  std::int64_t cursor = 0;
};

}  // namespace tessera
