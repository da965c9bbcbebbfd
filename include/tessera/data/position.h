#pragma once

#include <cstdint>

namespace tessera {

/// Which samples of an epoch's order a process reads: entries index, index + count, index + 2 count, ...
struct RankSlice {
  int index = 0;
  int count = 1;
};

/// Where the next batch starts: `cursor` samples into the order of `epoch`, counted over all ranks (and over the
/// components of a mixture that gives a batch of each to every update).
struct DataPosition {
  std::int64_t epoch = 0;
  std::int64_t cursor = 0;
};

}  // namespace tessera
