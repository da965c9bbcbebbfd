// Bitmaps with AVX-512. Processes sixteen documents at a time, and expands their impacts to the positions of the set bits. A bitmap costs
// the same however many bits are set, while a list costs more the longer it is. So a frequent term is several times cheaper as a bitmap.
#include <immintrin.h>

#include "kernels/impact_scores/lists.inc.h"

namespace tessera::kernels {
namespace {

/// A mask of all lanes. It is passed to masked conversions, because GCC 12 warns about the conversions without a mask.
constexpr __mmask16 kAll = 0xFFFF;

/// Returns impact times weight where a bit is set, and 0 elsewhere. The upper 16 bits of impacts and weights are 0, so madd, which
/// multiplies 16-bit numbers and adds pairs of products, returns impact times weight.
inline __m512i spread_products(const std::uint8_t* impacts, __mmask16 bits, __m512i weight) {
  const __m512i dense = _mm512_maskz_cvtepu8_epi32(kAll, _mm_loadu_si128(reinterpret_cast<const __m128i*>(impacts)));
  return _mm512_madd_epi16(_mm512_maskz_expand_epi32(bits, dense), weight);
}
inline __m512i spread_products(const std::uint16_t* impacts, __mmask16 bits, __m512i weight) {
  const __m512i dense =
      _mm512_maskz_cvtepu16_epi32(kAll, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(impacts)));
  return _mm512_mullo_epi32(_mm512_maskz_expand_epi32(bits, dense), weight);
}

template <class Impact>
inline void add_bitmap(const std::uint64_t* bits, std::int64_t words, const Impact* impacts, std::uint32_t weight,
                       std::uint32_t* scores) {
  const __m512i weights = _mm512_set1_epi32(static_cast<int>(weight));
  for (std::int64_t w = 0; w < words; ++w) {
    const std::uint64_t word = bits[w];
    const Impact* from = impacts;
    for (int part = 0; part < 4; ++part) {
      const auto mask = static_cast<__mmask16>(word >> (16 * part));
      std::uint32_t* const to = scores + 64 * w + 16 * part;
      _mm512_storeu_si512(to, _mm512_add_epi32(_mm512_loadu_si512(to), spread_products(from, mask, weights)));
      from += __builtin_popcount(mask);
    }
    impacts = from;
  }
}

std::int64_t count_at_least(const std::uint32_t* scores, std::int64_t count, std::uint32_t least) {
  const __m512i bound = _mm512_set1_epi32(static_cast<int>(least));
  std::int64_t found = 0;
  for (std::int64_t i = 0; i < count; i += 16)
    found += __builtin_popcount(_mm512_cmpge_epu32_mask(_mm512_loadu_si512(scores + i), bound));
  return found;
}

std::int64_t take_at_least(std::uint32_t* scores, std::int64_t count, std::uint32_t least, std::uint16_t* documents,
                           std::uint32_t* taken) {
  const __m512i bound = _mm512_set1_epi32(static_cast<int>(least));
  std::int64_t found = 0;
  for (std::int64_t i = 0; i < count; i += 16) {
    std::uint32_t mask = _mm512_cmpge_epu32_mask(_mm512_loadu_si512(scores + i), bound);
    for (; mask != 0; mask &= mask - 1) {
      const std::int64_t document = i + __builtin_ctz(mask);
      documents[found] = static_cast<std::uint16_t>(document);
      taken[found++] = scores[document];
    }
    _mm512_storeu_si512(scores + i, _mm512_setzero_si512());
  }
  return found;
}

}  // namespace

const ImpactScoreKernels kAvx512ImpactScores = {add_list<std::uint8_t>,   add_list<std::uint16_t>,
                                                add_bitmap<std::uint8_t>, add_bitmap<std::uint16_t>,
                                                count_at_least,           take_at_least};

}  // namespace tessera::kernels
