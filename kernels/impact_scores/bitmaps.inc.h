// Functions for bitmaps and for scans of the scores, for machines without AVX-512. They use no vector masks. Bits are
// visited one by one. The compiler vectorizes the scans.
#include "kernels/impact_scores/lists.inc.h"

namespace tessera::kernels {
namespace {

template <class Impact>
inline void add_bitmap(const std::uint64_t* bits, std::int64_t words, const Impact* __restrict impacts,
                       std::uint32_t weight, std::uint32_t* __restrict scores) {
  for (std::int64_t w = 0; w < words; ++w) {
    for (std::uint64_t rest = bits[w]; rest != 0; rest &= rest - 1)
      scores[64 * w + __builtin_ctzll(rest)] += *impacts++ * weight;
  }
}

std::int64_t count_at_least(const std::uint32_t* scores, std::int64_t count, std::uint32_t least) {
  std::int64_t found = 0;
  for (std::int64_t i = 0; i < count; ++i) found += scores[i] >= least ? 1 : 0;
  return found;
}

std::int64_t take_at_least(std::uint32_t* scores, std::int64_t count, std::uint32_t least, std::uint16_t* documents,
                           std::uint32_t* taken) {
  std::int64_t found = 0;
  for (std::int64_t begin = 0; begin < count; begin += 16) {
    bool any = false;
    for (std::int64_t i = begin; i < begin + 16; ++i) any |= scores[i] >= least;
    for (std::int64_t i = begin; any && i < begin + 16; ++i) {
      if (scores[i] < least) continue;
      documents[found] = static_cast<std::uint16_t>(i);
      taken[found++] = scores[i];
    }
    for (std::int64_t i = begin; i < begin + 16; ++i) scores[i] = 0;
  }
  return found;
}

}  // namespace
}  // namespace tessera::kernels
