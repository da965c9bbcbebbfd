// The loops of packed maps, for one instruction set and one type of operands. cpu/matrix.inc.h explains what the including source must
// define. With TESSERA_BFLOAT16_OPERANDS, operands are bfloat16 (avx512_bf16).
#include "kernels/cpu/exponential.inc.h"
#include "kernels/packed_map/map_tile.h"

#if defined(TESSERA_BFLOAT16_OPERANDS)
#include <immintrin.h>
#endif

namespace tessera::kernels {
namespace {

#if defined(TESSERA_BFLOAT16_OPERANDS)

std::int64_t words(std::int64_t in) {
  return (in + 1) / 2;
}

/// Rounds a row to bfloat16, two values per word.
inline void to_words(const float* row, std::int64_t in, float* to) {
  std::uint16_t* const narrow = reinterpret_cast<std::uint16_t*>(to);
  std::int64_t k = 0;
  for (; k + kPanel <= in; k += kPanel) {
    const __m512bh rounded = _mm512_cvtne2ps_pbh(reinterpret_cast<__m512>(load(row + k + kVector)), reinterpret_cast<__m512>(load(row + k)));
    store(to + k / 2, reinterpret_cast<Vector>(rounded));
  }
  for (; k < in; ++k) narrow[k] = float_to_bfloat16(row[k]);
  if (in % 2 != 0) narrow[in] = 0;
}

inline Vector add_product(Vector sum, const float* a, Vector b) {
  std::int32_t word;
  __builtin_memcpy(&word, a, sizeof(word));
  return reinterpret_cast<Vector>(_mm512_dpbf16_ps(reinterpret_cast<__m512>(sum), reinterpret_cast<__m512bh>(_mm512_set1_epi32(word)),
                                                   reinterpret_cast<__m512bh>(b)));
}

#else

std::int64_t words(std::int64_t in) {
  return in;
}

inline Vector add_product(Vector sum, const float* a, Vector b) {
  return sum + broadcast(*a) * b;
}

#endif

void pack(const float* matrix, std::int64_t rows, std::int64_t in, int group, float* block) {
#if defined(TESSERA_BFLOAT16_OPERANDS)
  // Rounds a strip of the rows at a time, which stays in the first-level cache.
  constexpr std::int64_t kStrip = 256;
  alignas(64) float rounded[kPanel * kStrip / 2];
  for (std::int64_t k = 0; k < in; k += kStrip) {
    const std::int64_t depth = smaller(kStrip, in - k);
    for (std::int64_t r = 0; r < rows; ++r) to_words(matrix + r * in + k, depth, rounded + r * (kStrip / 2));
    const PickedRows strip = {rounded, kStrip / 2, nullptr};
    pack_transposed(&strip, 1, rows, 0, group, words(depth), block + k / 2 * group);
  }
#else
  const PickedRows all = {matrix, in, nullptr};
  pack_transposed(&all, 1, rows, 0, group, in, block);
#endif
}

/// 1 / (1 + exp(-x)).
inline Vector sigmoid(Vector x) {
  const Vector power = exponential(select(x > 0.0f, -x, x)), one = broadcast(1.0f);
  return select(x > 0.0f, one, power) / (one + power);
}

/// The normal distribution function, by the approximation 7.1.26 of erf in Abramowitz and Stegun (1964), whose error is below 1.5e-7.
/// LibTorch's gelu uses it, too.
inline Vector normal_distribution(Vector x) {
  const Vector size = select(x > 0.0f, x, -x) * 0.70710678f, one = broadcast(1.0f);
  const Vector t = one / (one + 0.3275911f * size);
  Vector sum = broadcast(1.061405429f);
  sum = sum * t - 1.453152027f;
  sum = sum * t + 1.421413741f;
  sum = sum * t - 0.284496736f;
  sum = sum * t + 0.254829592f;
  const Vector tail = 0.5f * sum * t * exponential(-size * size);
  return select(x > 0.0f, one - tail, tail);
}

inline Vector activated(Vector x, Activation activation) {
  if (activation == Activation::kGelu) return x * normal_distribution(x);
  if (activation == Activation::kGeluTanh) return x * sigmoid(x * (1.5957691216f + 0.0713548163f * x * x));
  return x * sigmoid(activation == Activation::kQuickGelu ? 1.702f * x : x);
}

/// Writes sums [rows, kPanel] to columns of y, with bias and activation.
void finish(const cpu::PackedMapCall& call, const Vector (*sums)[2], std::int64_t rows, const float* bias, std::int64_t columns, float* y) {
  alignas(64) float last[kPanel] = {};
  const bool whole = columns == kPanel;
  Vector added[2] = {};
  if (bias != nullptr && !whole)
    for (std::int64_t c = 0; c < columns; ++c) last[c] = bias[c];
  if (bias != nullptr)
    for (int v = 0; v < 2; ++v) added[v] = load((whole ? bias : last) + v * kVector);
  for (std::int64_t r = 0; r < rows; ++r, y += call.shape.out) {
    float* const to = whole ? y : last;
    for (int v = 0; v < 2; ++v) {
      const Vector value = sums[r][v] + added[v];
      store(to + v * kVector, call.activated ? activated(value, call.activation) : value);
    }
    if (whole) continue;
    for (std::int64_t c = 0; c < columns; ++c) y[c] = last[c];
  }
}

template <int kRows>
void multiply_block(std::int64_t depth, const float* block, int group, const float* panel, Vector (*to)[2]) {
  Vector sums[kRows][2] = {};
#pragma GCC unroll 2
  for (std::int64_t k = 0; k < depth; ++k, block += group, panel += kPanel) {
    const Vector b[2] = {load(panel), load(panel + kVector)};
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      sums[r][0] = add_product(sums[r][0], block + r, b[0]);
      sums[r][1] = add_product(sums[r][1], block + r, b[1]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    to[r][0] = sums[r][0];
    to[r][1] = sums[r][1];
  }
}

template <int kRows = kTileRows>
void multiply_rows(std::int64_t rows, std::int64_t depth, const float* block, int group, const float* panel, Vector (*to)[2]) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return multiply_rows<kRows - 1>(rows, depth, block, group, panel, to);
  }
  multiply_block<kRows>(depth, block, group, panel, to);
}

void tile(const cpu::PackedMapCall& call, std::int64_t rows, const float* block, const float* panel, const float* bias,
          std::int64_t columns, float* y) {
  Vector sums[kTileRows][2];
  constexpr int kGroup = (kTileRows + kVector - 1) / kVector * kVector;
  multiply_rows(rows, words(call.shape.in), block, kGroup, panel, sums);
  finish(call, sums, rows, bias, columns, y);
}

constexpr MapKernels kMapKernels = {kTileRows, kPanel, (kTileRows + kVector - 1) / kVector * kVector, words, pack, tile};

}  // namespace
}  // namespace tessera::kernels
