#include "src/data/resample_loops.h"

#include <cstring>
#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace tessera {
namespace {

constexpr int kPrecision = ResampleWeights::precision;
constexpr std::int32_t kHalf = 1 << (kPrecision - 1);

std::uint8_t to_byte(std::int32_t sum) {
  sum >>= kPrecision;
  return static_cast<std::uint8_t>(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

void across_portable(const std::uint8_t* in, std::uint8_t* out, const ResampleWeights& w) {
  for (std::int64_t i = 0; i < w.outputs; ++i, out += 3) {
    const std::uint8_t* pixel = in + 3 * w.first[static_cast<std::size_t>(i)];
    const std::int32_t* weight = w.values.data() + i * w.taps;
    std::int32_t red = kHalf, green = kHalf, blue = kHalf;
    for (std::int64_t j = 0; j < w.count[static_cast<std::size_t>(i)]; ++j, pixel += 3) {
      red += pixel[0] * weight[j];
      green += pixel[1] * weight[j];
      blue += pixel[2] * weight[j];
    }
    out[0] = to_byte(red);
    out[1] = to_byte(green);
    out[2] = to_byte(blue);
  }
}

void down_portable(const std::uint8_t* in, std::int64_t stride, std::uint8_t* out, std::int64_t length,
                   const std::int32_t* weight, std::int64_t count) {
  constexpr std::int64_t block = 64;
  std::int32_t sums[block];
  for (std::int64_t x = 0; x < length; x += block) {
    const std::int64_t n = length - x < block ? length - x : block;
    for (std::int64_t k = 0; k < n; ++k) sums[k] = kHalf;
    for (std::int64_t j = 0; j < count; ++j)
      for (std::int64_t k = 0; k < n; ++k) sums[k] += in[j * stride + x + k] * weight[j];
    for (std::int64_t k = 0; k < n; ++k) out[x + k] = to_byte(sums[k]);
  }
}

#ifdef __x86_64__
#pragma GCC push_options
#pragma GCC target("avx2")

// Two pixels a step: lanes r0 g0 b0 - r1 g1 b1 -. All outputs take the same number of steps, behind their own count
// with weight 0: a loop whose length changes from one output to the next would cost a wrong branch prediction each.
void across_avx2(const std::uint8_t* in, std::uint8_t* out, const ResampleWeights& w) {
  const __m128i spread = _mm_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, -1, -1, -1, -1, -1, -1, -1, -1);
  const __m128i pack = _mm_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
  const __m256i pair = _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1);
  for (std::int64_t i = 0; i < w.outputs; ++i, out += 3) {
    const std::uint8_t* pixel = in + 3 * w.first[static_cast<std::size_t>(i)];
    const std::int32_t* weight = w.values.data() + i * w.taps;
    __m256i sums = _mm256_setzero_si256();
    for (std::int64_t j = 0; j < w.steps; j += 2, pixel += 6) {
      const __m128i bytes = _mm_shuffle_epi8(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(pixel)), spread);
      const __m128i two = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(weight + j));
      const __m256i weights = _mm256_permutevar8x32_epi32(_mm256_castsi128_si256(two), pair);
      sums = _mm256_add_epi32(sums, _mm256_mullo_epi32(_mm256_cvtepu8_epi32(bytes), weights));
    }
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    sum = _mm_srai_epi32(_mm_add_epi32(sum, _mm_set1_epi32(kHalf)), kPrecision);
    sum = _mm_min_epi32(_mm_max_epi32(sum, _mm_setzero_si128()), _mm_set1_epi32(255));
    const int packed = _mm_cvtsi128_si32(_mm_shuffle_epi8(sum, pack));
    std::memcpy(out, &packed, sizeof(packed));  // the fourth byte is overwritten by the next pixel
  }
}

void down_avx2(const std::uint8_t* in, std::int64_t stride, std::uint8_t* out, std::int64_t length,
               const std::int32_t* weight, std::int64_t count) {
  std::int64_t x = 0;
  for (; x + 16 <= length; x += 16) {
    __m256i low = _mm256_set1_epi32(kHalf);
    __m256i high = low;
    const std::uint8_t* at = in + x;
    for (std::int64_t j = 0; j < count; ++j, at += stride) {
      const __m256i w = _mm256_set1_epi32(weight[j]);
      const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
      low = _mm256_add_epi32(low, _mm256_mullo_epi32(_mm256_cvtepu8_epi32(bytes), w));
      high = _mm256_add_epi32(high, _mm256_mullo_epi32(_mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8)), w));
    }
    // Saturating packs clamp to 0..255; they work on halves, hence the reordering.
    const __m256i words = _mm256_packs_epi32(_mm256_srai_epi32(low, kPrecision), _mm256_srai_epi32(high, kPrecision));
    const __m256i ordered = _mm256_permute4x64_epi64(words, 0xD8);
    const __m128i result = _mm_packus_epi16(_mm256_castsi256_si128(ordered), _mm256_extracti128_si256(ordered, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + x), result);
  }
  if (x < length) down_portable(in + x, stride, out + x, length - x, weight, count);
}

#pragma GCC pop_options
#endif

}  // namespace

ResampleLoops portable_resample_loops() {
  return {across_portable, down_portable};
}

ResampleLoops choose_resample_loops() {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2")) return {across_avx2, down_avx2};
#endif
  return portable_resample_loops();
}

}  // namespace tessera
