#include "src/training/log/slowest_rank.h"

#include <ATen/ATen.h>

namespace tessera {

SlowestRank slowest_rank(const at::Tensor& waited, const at::Tensor& computed) {
  const at::Tensor idle = waited - computed;
  const auto [least, last] = idle.min(0);                        // [steps]: the idle time of the rank that comes last, and this rank
  const at::Tensor caused = (idle - least).sum(0);               // [steps]: rank-seconds of waiting for this rank
  const at::Tensor of_rank = at::zeros({waited.size(0)}, waited.options()).index_add_(0, last, caused);
  const double all = caused.sum().item<double>();
  SlowestRank out;
  out.rank = static_cast<int>(of_rank.argmax().item<std::int64_t>());
  out.seconds = all / static_cast<double>(waited.size(0));
  out.of_waiting = all > 0 ? of_rank[out.rank].item<double>() / all : 0;
  return out;
}

}  // namespace tessera
