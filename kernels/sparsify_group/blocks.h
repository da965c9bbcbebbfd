#pragma once

// Code that the forward and backward kernels share: arguments, the rules for a row's weights, masks, and the products with the weights.
#include "kernels/device/current_device.h"
#include "kernels/device/tensor_core.h"
#include "kernels/sparsify_group/configurations.h"
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

/// Whether rows can be read and written 16 bytes at a time. True if there are no rows.
template <class AnyRows>
bool aligned_rows(const AnyRows& rows, std::int64_t width, DataType type) {
  const std::int64_t per_vector = 16 / static_cast<std::int64_t>(size_of(type));
  return rows.data == nullptr || (reinterpret_cast<std::uintptr_t>(rows.data) % 16 == 0 && rows.batch_stride % per_vector == 0 &&
                                  rows.row_stride % per_vector == 0 && width % per_vector == 0);
}

/// Calls start(constants) with the constants of the plan's configuration as template arguments: kRowTiles, kColumnTiles, kSliceBytes.
template <int kRowTilesValue, int kColumnTilesValue, int kSliceBytesValue>
struct ConfigurationConstants {
  static constexpr int kRowTiles = kRowTilesValue, kColumnTiles = kColumnTilesValue, kSliceBytes = kSliceBytesValue;
};
template <std::size_t kIndex = 0, class Start>
Status with_constants(const SparsifyGroupConfiguration* configuration, Start start) {
  constexpr SparsifyGroupConfiguration kThis = kSparsifyGroupConfigurations[kIndex];
  if (configuration == kSparsifyGroupConfigurations + kIndex) {
    return start(ConfigurationConstants<kThis.row_tiles, kThis.column_tiles, kThis.slice_bytes>());
  }
  if constexpr (kIndex + 1 < sizeof(kSparsifyGroupConfigurations) / sizeof(kThis)) {
    return with_constants<kIndex + 1>(configuration, start);
  }
  return Status::failure("sparsify_group: no GPU kernel for this number of patches fits into the shared memory of a block");
}

/// What both passes need. Offsets and numbers of buffers are those of SparsifyGroupPlan.
struct CommonArguments {
  int tokens, patches, width, token_tiles, row_tiles;
  bool softmax, tf32, aligned_inputs, aligned_outputs;
  float threshold, inverse_temperature;
  int weight_pitch, weights, similarity_ring, product_ring, similarity_stage_bytes, product_stage_bytes;
  int similarity_stages, product_stages;
  const std::uint8_t* mask;

  CommonArguments(const SparsifyGroupProblem& problem, const SparsifyGroupPlan& plan, const std::uint8_t* text_mask)
      : tokens(static_cast<int>(problem.tokens)),
        patches(static_cast<int>(problem.patches)),
        width(static_cast<int>(problem.width)),
        token_tiles(plan.token_tiles),
        row_tiles(plan.row_tiles),
        softmax(problem.weights == PatchWeights::kSoftmax),
        tf32(problem.tf32),
        aligned_inputs(true),
        aligned_outputs(true),
        threshold(problem.threshold),
        inverse_temperature(1.0f / problem.softmax_temperature),
        weight_pitch(plan.weight_pitch),
        weights(plan.weights),
        similarity_ring(plan.similarity_ring),
        product_ring(plan.product_ring),
        similarity_stage_bytes(plan.similarity_stage_bytes),
        product_stage_bytes(plan.product_stage_bytes),
        similarity_stages(plan.similarity_stages),
        product_stages(plan.product_stages),
        mask(text_mask) {}

  __device__ __forceinline__ int patch_rows() const { return (patches + 15) / 16 * 16; }
  __device__ __forceinline__ int tile_tokens() const { return 16 * row_tiles; }
};

__device__ __forceinline__ bool is_flat(float lowest, float highest) {
  return highest - lowest <= kFlatRow * fmaxf(fabsf(lowest), fabsf(highest));
}

/// The numbers of a token that all threads need, in shared memory.
struct alignas(16) RowNumbers {
  float lowest, highest;  // of the similarities
  float cut;              // weights of similarities below lowest + cut are 0
  float scale;            // 1 / sum of the weights before the normalization
  float mean;             // of the gradient of the weights, by weight
  float at_lowest;        // the share of the minimum's gradient that each patch at the minimum gets
  float unused[2];
};
static_assert(sizeof(RowNumbers) == 4 * kRowNumbers);

/// The mask of up to 96 tokens from `first` on, in registers of every thread.
struct TileMask {
  unsigned words[3];

  /// Returns one bit for each of 32 tokens, from token `first` on. A bit is set if its token is real. All lanes of the calling warp get the
  /// result.
  static __device__ __forceinline__ unsigned real_bits(const std::uint8_t* mask, std::int64_t pair, int tokens, int first, int end) {
    const int token = first + static_cast<int>(threadIdx.x % 32);
    const bool real = token < tokens && token < end && (mask == nullptr || mask[pair * tokens + token] != 0);
    return __ballot_sync(kAllLanes, real ? 1 : 0);
  }
  __device__ __forceinline__ TileMask(const std::uint8_t* mask, std::int64_t pair, int tokens, int first, int end) {
#pragma unroll
    for (int i = 0; i < 3; ++i) words[i] = real_bits(mask, pair, tokens, first + 32 * i, end);
  }
  __device__ __forceinline__ TileMask(const CommonArguments& arguments, std::int64_t pair, int first)
      : TileMask(arguments.mask, pair, arguments.tokens, first, first + arguments.tile_tokens()) {}
  __device__ __forceinline__ bool real(int row) const {
    const unsigned word = row < 32 ? words[0] : row < 64 ? words[1] : words[2];
    return (word >> (row & 31) & 1u) != 0;
  }
  /// Returns one bit for each of the eight tokens from `row` on, a multiple of 8.
  __device__ __forceinline__ unsigned eight(int row) const {
    const unsigned word = row < 32 ? words[0] : row < 64 ? words[1] : words[2];
    return word >> (row & 31) & 0xffu;
  }
  /// Whether all tokens of the pair are real, if the mask is that of its `tokens` tokens.
  __device__ __forceinline__ bool all(int tokens) const {
    bool result = true;
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      const int left = tokens - 32 * i;
      result = result && words[i] == (left >= 32 ? ~0u : left > 0 ? (1u << left) - 1u : 0u);
    }
    return result;
  }
  __device__ __forceinline__ bool any() const { return (words[0] | words[1] | words[2]) != 0; }
  /// Returns a bit for each tile of 16 rows. Bit i is set if one of the rows 16 i .. 16 i + 15 is real.
  __device__ __forceinline__ unsigned row_tiles() const {
    unsigned tiles = 0;
#pragma unroll
    for (int i = 0; i < 6; ++i) tiles |= (words[i / 2] >> (i % 2 * 16) & 0xffffu) != 0 ? 1u << i : 0u;
    return tiles;
  }
};

/// A warp's share of the product of weights [tokens, patches] with a slice of the patches [patches, columns]: kTiles tiles of 8 columns,
/// from the tile `column_tile` on, for the 16 tokens from `row` on.
template <class Element, int kSliceBytes, int kTiles>
__device__ __forceinline__ void multiply_by_patches(float (&sums)[kTiles][4], const Element* weights, int pitch, int row,
                                                    const unsigned char* image_slice, int column_tile, int patch_rows, bool tf32) {
  using Core = TensorCore<Element>;
  // The number of steps whose operands are loaded before the first of them is multiplied.
  [[maybe_unused]] constexpr int kUnrolled = sizeof(Element) == 2 ? 4 : 2;
#pragma unroll kUnrolled
  for (int k = 0; k < patch_rows; k += Core::kDepth) {
    typename Core::B b[kTiles];
    Core::template load_columns<kSliceBytes>(b, image_slice, column_tile, k, tf32);
    Core::multiply(sums, 0, Core::load_rows(weights, pitch, row, k, tf32), b, kTiles, tf32);
  }
}

/// The units of work into which a product with the patches is divided: 16 tokens and kTiles tiles of 8 columns, so that there are about as
/// many units as groups of 8 warps can share.
template <class Element, int kRowTiles, int kSliceBytes>
struct PatchUnits {
  static constexpr int kSliceTiles = kSliceBytes / static_cast<int>(sizeof(Element)) / 8;  // tiles of 8 columns in a slice
  static constexpr int kTiles = kRowTiles * kSliceTiles >= 32 ? 4 : kRowTiles * kSliceTiles >= 16 ? 2 : 1;
  static constexpr int kPerRow = kSliceTiles / kTiles;
};

template <int kTiles>
__device__ __forceinline__ void clear(float (&sums)[kTiles][4]) {
#pragma unroll
  for (int j = 0; j < kTiles; ++j) sums[j][0] = sums[j][1] = sums[j][2] = sums[j][3] = 0.0f;
}
template <int kRows, int kTiles>
__device__ __forceinline__ void clear(float (&sums)[kRows][kTiles][4]) {
#pragma unroll
  for (int i = 0; i < kRows; ++i) clear(sums[i]);
}

/// Stores tiles of 8 columns for the 16 tokens from `row` on, with zeros for padding.
template <class Element, int kTiles>
__device__ __forceinline__ void put_token_rows(float (&sums)[kTiles][4], const Matrices<Element>& to, const CommonArguments& arguments,
                                               const TileMask& mask, std::int64_t pair, int first_token, int row, int column) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (mask.real(row + static_cast<int>(threadIdx.x % 32 / 4) + 8 * h)) continue;
#pragma unroll
    for (int j = 0; j < kTiles; ++j) sums[j][2 * h] = sums[j][2 * h + 1] = 0.0f;
  }
  store_tiles<Element>(sums, column, arguments.width, arguments.aligned_outputs, [&](int offset) {
    const int token = first_token + row + offset;
    return token < arguments.tokens ? to.row(pair, token) : nullptr;
  });
}

/// Computes one unit (PatchUnits) of the product of `weights` [tokens, patches] with the slice `step` of the patches, and stores it to `to`.
/// `block` is a ForwardBlock or a BackwardBlock.
template <class Block, class Element>
__device__ __forceinline__ void put_patch_products(const Block& block, const Element* weights, const Matrices<Element>& to, int unit, int step,
                                                   const unsigned char* buffer) {
  using Units = PatchUnits<Element, Block::kRowTiles, Block::kSliceBytes>;
  const int i = unit / Units::kPerRow, column_tile = unit % Units::kPerRow * Units::kTiles;
  float sums[Units::kTiles][4];
  clear(sums);
  if (block.product.has_row(i)) {
    multiply_by_patches<Element, Block::kSliceBytes>(sums, weights, block.arguments.weight_pitch, 16 * i, buffer, column_tile,
                                                     block.arguments.patch_rows(), block.arguments.tf32);
  }
  put_token_rows<Element>(sums, to, block.arguments, block.mask, block.pair, block.first_token, 16 * i,
                          step * Block::kSliceColumns + 8 * column_tile);
}

}  // namespace
}  // namespace tessera::kernels
