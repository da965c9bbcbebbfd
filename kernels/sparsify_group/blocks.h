#pragma once

// Code that the forward and backward kernels share: matrix arguments, the rules for a row's weights, masks, and
// functions that store results.
#include <algorithm>

#include "kernels/device/pairs.h"
#include "kernels/device/staging.h"
#include "kernels/sparsify_group/row_rules.h"
#include "kernels/sparsify_group/sparsify_group.h"

namespace tessera::kernels {
namespace {

template <class Element>
struct Matrices {
  Element* data;
  std::int64_t batch_stride, row_stride;
  __device__ __forceinline__ Element* row(std::int64_t pair, std::int64_t index) const {
    return data + pair * batch_stride + index * row_stride;
  }
};

template <class Element>
Matrices<const Element> matrices(const ConstRows& rows) {
  return {static_cast<const Element*>(rows.data), rows.batch_stride, rows.row_stride};
}
template <class Element>
Matrices<Element> matrices(const Rows& rows) {
  return {static_cast<Element*>(rows.data), rows.batch_stride, rows.row_stride};
}

/// Whether rows can be read 16 bytes at a time.
inline bool aligned_rows(const void* data, std::int64_t batch_stride, std::int64_t row_stride, std::int64_t width,
                         DataType type) {
  const std::int64_t per_vector = 16 / static_cast<std::int64_t>(size_of(type));
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && batch_stride % per_vector == 0 &&
         row_stride % per_vector == 0 && width % per_vector == 0;
}
inline bool aligned_rows(const ConstRows& rows, std::int64_t width, DataType type) {
  return aligned_rows(rows.data, rows.batch_stride, rows.row_stride, width, type);
}

struct RowRules {
  bool softmax;
  float threshold;
  float inverse_temperature;
};
inline RowRules row_rules(const SparsifyGroupProblem& problem) {
  return {problem.weights == PatchWeights::kSoftmax, problem.threshold, 1.0f / problem.softmax_temperature};
}

__device__ __forceinline__ bool is_flat(float lowest, float highest) {
  return highest - lowest <= kFlatRow * fmaxf(fabsf(lowest), fabsf(highest));
}

/// The layout of a [kRows, 64] tile of a matrix in shared memory. Products that sum over patches or tokens use it.
template <class Element>
struct RowStage {
  static constexpr int kColumns = 64;
  static constexpr int kRows = 128 / static_cast<int>(sizeof(Element));
  static constexpr int kPitch = kColumns + 16 / static_cast<int>(sizeof(Element));
  static constexpr int kElements = kRows * kPitch;
};

/// Returns one bit for each of 32 tokens of a pair, from token `first` on. A bit is set if its token is real. All lanes
/// of the calling warp get the result.
__device__ __forceinline__ unsigned real_bits(const std::uint8_t* mask, std::int64_t pair, int tokens, int first) {
  const int token = first + static_cast<int>(threadIdx.x % 32);
  const bool real = token < tokens && (mask == nullptr || mask[pair * tokens + token] != 0);
  return __ballot_sync(kAllLanes, real ? 1 : 0);
}

/// The mask of tokens first .. first + kTokens - 1, in registers of every thread. kTokens is at most 64.
template <int kTokens>
struct TileMask {
  unsigned low, high;
  __device__ __forceinline__ TileMask(const std::uint8_t* mask, std::int64_t pair, int tokens, int first)
      : low(real_bits(mask, pair, tokens, first)), high(0) {
    if constexpr (kTokens > 32) high = real_bits(mask, pair, tokens, first + 32);
    if constexpr (kTokens < 32) low &= (1u << kTokens) - 1u;
  }
  __device__ __forceinline__ bool real(int row) const {
    return ((row < 32 ? low >> row : high >> (row - 32)) & 1u) != 0;
  }
  __device__ __forceinline__ bool any() const { return (low | high) != 0; }
  /// Returns a bit for each tile of 16 rows. Bit t is set if one of the rows 16 t .. 16 t + 15 is real.
  __device__ __forceinline__ unsigned row_tiles() const {
    return ((low & 0xffffu) != 0 ? 1u : 0u) | ((low >> 16) != 0 ? 2u : 0u) | ((high & 0xffffu) != 0 ? 4u : 0u) |
           ((high >> 16) != 0 ? 8u : 0u);
  }
};

}  // namespace
}  // namespace tessera::kernels
