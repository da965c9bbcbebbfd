#pragma once

#include <cstdint>

namespace tessera {

/// The share of an epoch's samples that one process reads: the entries index, index + count, index + 2 count, ... of the epoch's order.
struct RankSlice {
  int index = 0;
  int count = 1;
};

/// Where the next batch starts: after the first `cursor` samples in the order of `epoch`, counted over all ranks (and, for a mixture with
/// mode accumulate, over all components).
struct DataPosition {
  std::int64_t epoch = 0;
  std::int64_t cursor = 0;
};

}  // namespace tessera
