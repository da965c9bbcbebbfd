#include <algorithm>

#include <ATen/ATen.h>

#include "src/optim/stochastic_rounding.h"

namespace tessera {

// The upper 16 bits of a float32 are the bfloat16 that is nearer to zero, and the lower 16 bits are the relative distance from it. Adding a
// uniform number of 16 bits carries into the upper bits with this probability.
void round_stochastically(const at::Tensor& from, const at::Tensor& to, std::uint64_t seed, std::int64_t first) {
  constexpr std::int64_t kRun = 1 << 20;  // elements whose random numbers come from one seed
  at::Generator generator = at::globalContext().defaultGenerator(from.device()).clone();
  const at::Tensor noise = at::empty_like(from, from.options().dtype(at::kInt));
  const at::Tensor all = noise.as_strided({noise.numel()}, {1});
  for (std::int64_t run = first / kRun; run * kRun < first + from.numel(); ++run) {
    const std::int64_t begin = std::max(first, run * kRun), end = std::min(first + from.numel(), (run + 1) * kRun);
    generator.set_current_seed(seed + static_cast<std::uint64_t>(run));
    const at::Tensor drawn = at::empty({end - run * kRun}, noise.options()).random_(0, 1 << 16, generator);
    all.slice(0, begin - first, end - first).copy_(drawn.slice(0, begin - run * kRun));
  }
  const at::Tensor bits = noise.add_(from.to(at::kFloat).view(at::kInt)).bitwise_and_(~0xFFFF);
  to.copy_(bits.view(at::kFloat));
}

}  // namespace tessera
