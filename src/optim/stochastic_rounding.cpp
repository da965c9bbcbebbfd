#include <ATen/ATen.h>

#include "src/optim/stochastic_rounding.h"

namespace tessera {

// The upper 16 bits of a float32 are the bfloat16 that is nearer to zero, and the lower 16 bits are the relative distance from it. Adding a
// uniform number of 16 bits carries into the upper bits with this probability.
void round_stochastically(const at::Tensor& from, const at::Tensor& to, std::uint64_t seed) {
  at::Generator generator = at::globalContext().defaultGenerator(from.device()).clone();
  generator.set_current_seed(seed);
  const at::Tensor noise = at::empty_like(from, from.options().dtype(at::kInt)).random_(0, 1 << 16, generator);
  const at::Tensor bits = noise.add_(from.to(at::kFloat).view(at::kInt)).bitwise_and_(~0xFFFF);
  to.copy_(bits.view(at::kFloat));
}

}  // namespace tessera
