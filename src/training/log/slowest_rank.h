#pragma once

#include <string>

#include <ATen/core/Tensor.h>

namespace tessera {

/// How much the ranks wait for each other, and for which rank most.
struct SlowestRank {
  int rank = 0;           // the rank that causes most of the waiting
  std::string host;       // its machine
  double seconds = 0;     // time for which a rank waits for the slowest one of each step, on average over the ranks
  double of_waiting = 0;  // share of this time in which the ranks wait for `rank`
};

/// `waited` [ranks, steps], float64, are the seconds that each rank spent in collective operations in each step. The rank that spent the
/// least comes last to them, so the others wait for it; what it spent, too, is the transfer. Leaves `host` empty.
SlowestRank slowest_rank(const at::Tensor& waited);

}  // namespace tessera
