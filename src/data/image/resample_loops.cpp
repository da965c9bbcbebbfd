#include "src/data/image/resample_loops.h"

#include <algorithm>
#include <cstring>
#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace tessera {

std::int64_t ResampleWeights::begin() const {
  return std::min(first.front(), first.back());
}

std::int64_t ResampleWeights::end() const {
  return std::max(first.front() + count.front(), first.back() + count.back());
}

void ResampleWeights::mirror() {
  std::reverse(first.begin(), first.end());
  std::reverse(count.begin(), count.end());
  for (std::int64_t a = 0, b = outputs - 1; a < b; ++a, --b)
    std::swap_ranges(values.begin() + a * taps, values.begin() + (a + 1) * taps, values.begin() + b * taps);
}

void ResampleWeights::split() {
  halves.resize(2 * values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::int16_t* four = halves.data() + i / 4 * 8 + i % 4;
    four[0] = static_cast<std::int16_t>(values[i] >> 12);
    four[4] = static_cast<std::int16_t>(values[i] & 0xFFF);
  }
}

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

// Computes bytes [begin, length) of a row.
void down_from(std::int64_t begin, const std::uint8_t* in, std::int64_t stride, std::uint8_t* out, std::int64_t length,
               const ResampleWeights& w, std::int64_t i) {
  const std::int32_t* weight = w.values.data() + i * w.taps;
  const std::int64_t count = w.count[static_cast<std::size_t>(i)];
  constexpr std::int64_t block = 64;
  std::int32_t sums[block];
  for (std::int64_t x = begin; x < length; x += block) {
    const std::int64_t n = length - x < block ? length - x : block;
    for (std::int64_t k = 0; k < n; ++k) sums[k] = kHalf;
    for (std::int64_t j = 0; j < count; ++j)
      for (std::int64_t k = 0; k < n; ++k) sums[k] += in[j * stride + x + k] * weight[j];
    for (std::int64_t k = 0; k < n; ++k) out[x + k] = to_byte(sums[k]);
  }
}

void down_portable(const std::uint8_t* in, std::int64_t stride, std::uint8_t* out, std::int64_t length,
                   const ResampleWeights& w, std::int64_t i) {
  down_from(0, in, stride, out, length, w, i);
}

void planes_from(std::int64_t begin, const std::uint8_t* in, std::uint8_t* out, std::int64_t count) {
  for (std::int64_t i = begin; i < count; ++i)
    for (std::int64_t c = 0; c < 3; ++c) out[c * count + i] = in[3 * i + c];
}

void planes_portable(const std::uint8_t* in, std::uint8_t* out, std::int64_t count) {
  planes_from(0, in, out, count);
}

#ifdef __x86_64__
#pragma GCC push_options
#pragma GCC target("avx2")

// Each 24-bit weight w is split into its upper and lower 12 bits. For a pixel p, p w = (p upper << 12) + p lower. AVX2 sums
// products of 16-bit numbers in pairs, several times faster than products of 32-bit numbers. All sums are exact modulo 2^32, and
// the final sum fits in 32 bits.
__m256i joined(__m256i upper, __m256i lower) {
  return _mm256_add_epi32(_mm256_slli_epi32(upper, 12), lower);
}

__m256i rounded(__m256i sums) {
  return _mm256_srai_epi32(_mm256_add_epi32(sums, _mm256_set1_epi32(kHalf)), kPrecision);
}

// Sums the weighted inputs of one output pixel, 4 input pixels per step. The result's lower half has the lanes red, red, green,
// green, and its upper half blue, blue, 0, 0. A color's sum is the sum of its two lanes. All outputs take the same number of
// steps, because a loop length that varies between outputs would cost a branch misprediction for each output. Inputs that an
// output does not need have weight 0.
__m256i pixel_sums(const std::uint8_t* pixel, const std::int16_t* halves, std::int64_t taps) {
  const __m256i spread = _mm256_setr_epi8(0, -1, 3, -1, 6, -1, 9, -1, 1, -1, 4, -1, 7, -1, 10, -1,  //
                                          2, -1, 5, -1, 8, -1, 11, -1, -1, -1, -1, -1, -1, -1, -1, -1);
  __m256i upper = _mm256_setzero_si256();
  __m256i lower = upper;
  for (std::int64_t j = 0; j < taps; j += 4, pixel += 12, halves += 8) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(pixel));
    const __m256i words = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(bytes), spread);
    long long both[2];
    std::memcpy(both, halves, sizeof(both));
    upper = _mm256_add_epi32(upper, _mm256_madd_epi16(words, _mm256_set1_epi64x(both[0])));
    lower = _mm256_add_epi32(lower, _mm256_madd_epi16(words, _mm256_set1_epi64x(both[1])));
  }
  return joined(upper, lower);
}

void across_avx2(const std::uint8_t* in, std::uint8_t* out, const ResampleWeights& w) {
  const __m128i pack = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
  const std::int64_t row = 2 * w.taps;
  for (std::int64_t i = 0; i < w.outputs; i += 4, out += 12) {
    const auto sums = [&](std::int64_t k) {
      const std::int64_t at = i + k < w.outputs ? i + k : w.outputs - 1;
      return pixel_sums(in + 3 * w.first[static_cast<std::size_t>(at)], w.halves.data() + at * row, w.taps);
    };
    const __m256i first = rounded(_mm256_hadd_epi32(sums(0), sums(1)));   // r0 g0 r1 g1 | b0 0 b1 0
    const __m256i second = rounded(_mm256_hadd_epi32(sums(2), sums(3)));  // r2 g2 r3 g3 | b2 0 b3 0
    const __m256i words = _mm256_packs_epi32(first, second);
    const __m256i bytes = _mm256_packus_epi16(words, words);
    const __m128i red_green = _mm256_castsi256_si128(bytes);
    const __m128i blue = _mm256_extracti128_si256(bytes, 1);
    const __m128i result = _mm_shuffle_epi8(_mm_unpacklo_epi16(red_green, blue), pack);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), result);  // 4 bytes too many, which the next store overwrites
  }
}

void down_avx2(const std::uint8_t* in, std::int64_t stride, std::uint8_t* out, std::int64_t length,
               const ResampleWeights& w, std::int64_t i) {
  const std::int16_t* halves = w.halves.data() + 2 * i * w.taps;
  const std::int64_t count = w.count[static_cast<std::size_t>(i)];
  std::int64_t x = 0;
  for (; x + 16 <= length; x += 16) {
    __m256i upper[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    __m256i lower[2] = {upper[0], upper[0]};
    for (std::int64_t j = 0; j < count; j += 2) {
      const std::uint8_t* at = in + x + j * stride;
      const std::int16_t* four = halves + j / 4 * 8 + j % 4;
      int high = 0, low = 0;
      std::memcpy(&high, four, sizeof(high));
      std::memcpy(&low, four + 4, sizeof(low));
      const __m256i high_pair = _mm256_set1_epi32(high), low_pair = _mm256_set1_epi32(low);
      const __m128i a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
      // An odd last row is paired with itself, with weight 0.
      const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(j + 1 < count ? at + stride : at));
      const __m256i words[2] = {_mm256_cvtepu8_epi16(_mm_unpacklo_epi8(a, b)),
                                _mm256_cvtepu8_epi16(_mm_unpackhi_epi8(a, b))};
      for (int k = 0; k < 2; ++k) {
        upper[k] = _mm256_add_epi32(upper[k], _mm256_madd_epi16(words[k], high_pair));
        lower[k] = _mm256_add_epi32(lower[k], _mm256_madd_epi16(words[k], low_pair));
      }
    }
    // The two pack instructions clamp to 0..255. The first one packs each half of a register separately, so its result must be reordered.
    const __m256i words = _mm256_packs_epi32(rounded(joined(upper[0], lower[0])), rounded(joined(upper[1], lower[1])));
    const __m256i ordered = _mm256_permute4x64_epi64(words, 0xD8);
    const __m128i result = _mm_packus_epi16(_mm256_castsi256_si128(ordered), _mm256_extracti128_si256(ordered, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + x), result);
  }
  if (x < length) down_from(x, in, stride, out, length, w, i);
}

// Handles 16 pixels per step. For each color, it picks the color's bytes out of the three input registers and merges them.
void planes_avx2(const std::uint8_t* in, std::uint8_t* out, std::int64_t count) {
  alignas(16) std::int8_t take[3][3][16];  // take[c][r][i] is the byte of register r that becomes byte i of color c, or -1 if none does
  std::memset(take, -1, sizeof(take));
  for (int c = 0; c < 3; ++c)
    for (int i = 0; i < 16; ++i) take[c][(3 * i + c) / 16][i] = static_cast<std::int8_t>((3 * i + c) % 16);
  std::int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const auto* from = reinterpret_cast<const __m128i*>(in + 3 * i);
    const __m128i bytes[3] = {_mm_loadu_si128(from), _mm_loadu_si128(from + 1), _mm_loadu_si128(from + 2)};
    for (int c = 0; c < 3; ++c) {
      __m128i color = _mm_setzero_si128();
      for (int k = 0; k < 3; ++k)
        color = _mm_or_si128(color, _mm_shuffle_epi8(bytes[k], *reinterpret_cast<const __m128i*>(take[c][k])));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + c * count + i), color);
    }
  }
  planes_from(i, in, out, count);
}

#pragma GCC pop_options
#endif

ResampleLoops choose_loops() {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2")) return {across_avx2, down_avx2, planes_avx2};
#endif
  return portable_resample_loops();
}

}  // namespace

ResampleLoops portable_resample_loops() {
  return {across_portable, down_portable, planes_portable};
}

const ResampleLoops& resample_loops() {
  static const ResampleLoops loops = choose_loops();
  return loops;
}

}  // namespace tessera
