// Postings as lists, for one instruction set. All documents of a list differ, so the additions are independent. Three
// loads and one store per posting limit the speed of the loop, and vector instructions (gather, scatter) do not make
// them faster. Nothing here may instantiate templates of the standard library; see cpu/matrix.inc.h.
#include <cstdint>

#include "kernels/impact_scores/impact_scores.h"

namespace tessera::kernels {
namespace {

template <class Impact>
inline void add_list(const std::uint16_t* __restrict documents, const Impact* __restrict impacts, std::int64_t count,
                     std::uint32_t weight, std::uint32_t* __restrict scores) {
  std::int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    scores[documents[i]] += impacts[i] * weight;
    scores[documents[i + 1]] += impacts[i + 1] * weight;
    scores[documents[i + 2]] += impacts[i + 2] * weight;
    scores[documents[i + 3]] += impacts[i + 3] * weight;
  }
  for (; i < count; ++i) scores[documents[i]] += impacts[i] * weight;
}

}  // namespace
}  // namespace tessera::kernels
