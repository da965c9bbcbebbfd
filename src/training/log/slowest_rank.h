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

/// `waited` [ranks, steps], float64, are the seconds that each rank's host spent in collective operations in each step, and `computed`
/// those that its device needed for work without such operations (on GPUs, whose waiting the host does not see; 0 on CPUs). The rank for which
/// waited - computed is least comes last, so the others wait for it; what it waited, too, is the transfer. Leaves `host` empty.
SlowestRank slowest_rank(const at::Tensor& waited, const at::Tensor& computed);

}  // namespace tessera
