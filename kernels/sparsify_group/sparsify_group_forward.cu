// Forward: A block of 8 warps processes one pair and a tile of its tokens. The tile has 64 tokens for up to 256
// patches, 32 for up to 640, and 16 for up to 1,024.
//   1. Compute S = T V^T for all patches. T and V are read once, in slices of 64 bytes along the width, through
//      double-buffered shared memory. Sums are in registers (tensor cores for bfloat16), and then go to shared memory
//      as float32.
//   2. With one warp per row, compute the minimum, the maximum, the weights and their sum. The weights replace the
//      similarities in place.
//   3. Compute grouped = A V, 64 columns at a time. V is read a second time, from the second-level cache.
// Global memory traffic per pair: T once, V twice, grouped once, and 12 bytes of statistics per token. S stays in
// shared memory. Rows of padding are not read, and 16-row tiles without a real token are not multiplied.
#include "kernels/sparsify_group/blocks.h"

namespace tessera::kernels {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
/// One pass computes the similarities of kPassPatches patches. In each pass, a warp computes kPassTiles tiles of 8 patches.
constexpr int kPassTiles = 4;
constexpr int kPassPatches = 8 * kPassTiles * kWarps;

template <class Element>
struct ForwardArguments {
  int tokens, patches, width, token_tiles;
  RowRules rules;
  bool aligned;
  Matrices<const Element> text, image;
  Matrices<Element> grouped;
  const std::uint8_t* mask;
  float* row_statistics;
  float* weights;
};

/// The shared memory of a block: similarities [kTokens, kCapacity], followed by a staging area. If there is only one
/// pass, its staging area may overlap the similarities, because the similarities are written only after the staged data
/// have been read.
template <class Element, int kRowTiles, int kCapacity>
struct ForwardLayout {
  static constexpr int kTokens = 16 * kRowTiles;
  static constexpr int kPitch = kCapacity + 4;  // an odd number of 16-byte words, so that eight rows are on different banks
  static constexpr int kSimilarityBytes = kTokens * kPitch * 4;
  static constexpr int kWidthStageElements = (kTokens + kPassPatches) * WidthStage<Element>::kPitch;
  static constexpr int kWidthStageBytes = 2 * kWidthStageElements * static_cast<int>(sizeof(Element));
  static constexpr int kRowStageBytes = 2 * RowStage<Element>::kElements * static_cast<int>(sizeof(Element));
  static constexpr bool kOverlaps = kCapacity <= kPassPatches;
  static_assert(!kOverlaps || kWidthStageBytes <= kSimilarityBytes, "the staging area must fit over the similarities");
  static constexpr int kBytes =
      kSimilarityBytes + (kOverlaps || kRowStageBytes > kWidthStageBytes ? kRowStageBytes : kWidthStageBytes);
  static_assert(kBytes <= kSparsifyGroupBlockMemory);
};

template <class Element, int kRowTiles, int kCapacity>
__device__ __forceinline__ void compute_similarities(const ForwardArguments<Element>& arguments, std::int64_t pair,
                                                     int first_token, const TileMask<16 * kRowTiles>& mask,
                                                     float* similarities, Element* staging) {
  using Layout = ForwardLayout<Element, kRowTiles, kCapacity>;
  using Stage = WidthStage<Element>;
  const int warp = threadIdx.x / 32;
  const Element* const text = arguments.text.row(pair, first_token);
  const int steps = (arguments.width + Stage::kDepth - 1) / Stage::kDepth;
  for (int patch0 = 0; patch0 < arguments.patches; patch0 += kPassPatches) {
    const int patches = arguments.patches - patch0 < kPassPatches ? arguments.patches - patch0 : kPassPatches;
    const Element* const image = arguments.image.row(pair, patch0);
    const WarpTiles tiles{0, 16, mask.row_tiles(), 8 * warp, 8 * kWarps, patches};
    float sums[kRowTiles][kPassTiles][4];
    clear(sums);
    pipeline(
        steps,
        [&](int step, int buffer) {
          Element* const text_stage = staging + buffer * Layout::kWidthStageElements;
          const int column = step * Stage::kDepth;
          stage<kThreads>(text_stage, Stage::kPitch, Layout::kTokens, 4, text, arguments.text.row_stride, column,
                          arguments.width, arguments.aligned, [&](int row) { return mask.real(row); });
          stage<kThreads>(text_stage + Layout::kTokens * Stage::kPitch, Stage::kPitch, rounded_up(patches, 8), 4, image,
                          arguments.image.row_stride, column, arguments.width, arguments.aligned,
                          [&](int row) { return row < patches; });
        },
        [&](int, int buffer) {
          const Element* const text_stage = staging + buffer * Layout::kWidthStageElements;
          accumulate<DepthAlong::kRow, DepthAlong::kRow>(sums, tiles, Stage::kDepth, text_stage, Stage::kPitch,
                                                         text_stage + Layout::kTokens * Stage::kPitch, Stage::kPitch);
        });
    for_each_pair(sums, tiles, [&](int row, int column, float first, float second) {
      float* const to = similarities + row * Layout::kPitch + patch0 + column;
      to[0] = first;
      to[1] = second;
    });
    __syncthreads();
  }
}

/// Replaces a row of similarities by its weights, in the type Element, with zeros past the last patch. All lanes of a
/// warp call this function together.
template <class Element, int kCapacity>
__device__ __forceinline__ void weigh_row(const ForwardArguments<Element>& arguments, std::int64_t token_index,
                                          bool real, float* row) {
  constexpr int kValues = kCapacity / 32;
  const int lane = threadIdx.x % 32;
  float values[kValues];
  if (!real) {
#pragma unroll
    for (int i = 0; i < kValues; ++i) values[i] = 0.0f;
  } else {
    float lowest = kInfinity, highest = -kInfinity, check = 0.0f;  // `check` becomes NaN if a similarity is NaN or infinite
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      const bool exists = lane + 32 * i < arguments.patches;
      values[i] = exists ? row[lane + 32 * i] : 0.0f;
      lowest = exists ? fminf(lowest, values[i]) : lowest;
      highest = exists ? fmaxf(highest, values[i]) : highest;
      check += values[i] * 0.0f;
    }
    check = warp_sum(check);
    lowest = warp_minimum(lowest) + check;
    highest = warp_maximum(highest) + check;
    const bool softmax = arguments.rules.softmax;
    const bool flat = !softmax && is_flat(lowest, highest);
    const float cut = softmax ? 0.0f : kept_from(highest - lowest, arguments.rules.threshold);
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      const bool exists = lane + 32 * i < arguments.patches;
      const float above = values[i] - lowest;
      const float kept = softmax ? expf((values[i] - highest) * arguments.rules.inverse_temperature) + check
                                 : (above < cut ? 0.0f : above);
      values[i] = exists ? kept : 0.0f;
      sum += values[i];
    }
    sum = warp_sum(sum);
    const float scale = 1.0f / sum;
    const float uniform = 1.0f / static_cast<float>(arguments.patches);
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      const bool exists = lane + 32 * i < arguments.patches;
      values[i] = exists ? (flat ? uniform : values[i] * scale) : 0.0f;
    }
    if (arguments.row_statistics != nullptr && lane == 0) {
      float* const to = arguments.row_statistics + token_index * kRowStatistics;
      to[0] = lowest;
      to[1] = highest;
      to[2] = sum;
    }
  }
  __syncwarp();  // all lanes have read before the first one writes
  Element* const weights = reinterpret_cast<Element*>(row);
#pragma unroll
  for (int i = 0; i < kValues; ++i) weights[lane + 32 * i] = from_float<Element>(values[i]);
  if (real && arguments.weights != nullptr) {
    float* const to = arguments.weights + token_index * arguments.patches;
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      if (lane + 32 * i < arguments.patches) to[lane + 32 * i] = values[i];
    }
  }
}

template <class Element, int kRowTiles, int kCapacity>
__device__ __forceinline__ void group_patches(const ForwardArguments<Element>& arguments, std::int64_t pair,
                                              int first_token, const TileMask<16 * kRowTiles>& mask,
                                              const float* weights, Element* staging) {
  using Layout = ForwardLayout<Element, kRowTiles, kCapacity>;
  using Stage = RowStage<Element>;
  constexpr int kWeightPitch = Layout::kPitch * 4 / static_cast<int>(sizeof(Element));
  const int chunks = (arguments.patches + Stage::kRows - 1) / Stage::kRows;
  const int blocks = (arguments.width + Stage::kColumns - 1) / Stage::kColumns;
  const WarpTiles tiles{0, 16, mask.row_tiles(), 8 * static_cast<int>(threadIdx.x / 32), 0, Stage::kColumns};
  float sums[kRowTiles][1][4];
  pipeline(
      chunks * blocks,
      [&](int step, int buffer) {
        const int patch0 = step % chunks * Stage::kRows;
        stage<kThreads>(staging + buffer * Stage::kElements, Stage::kPitch, Stage::kRows,
                        Stage::kColumns * static_cast<int>(sizeof(Element)) / 16, arguments.image.row(pair, patch0),
                        arguments.image.row_stride, step / chunks * Stage::kColumns, arguments.width, arguments.aligned,
                        [&](int row) { return patch0 + row < arguments.patches; });
      },
      [&](int step, int buffer) {
        const int chunk = step % chunks, patch0 = chunk * Stage::kRows, column0 = step / chunks * Stage::kColumns;
        if (chunk == 0) clear(sums);
        const int left = rounded_up(arguments.patches - patch0, Fragments<Element>::kStep);
        accumulate<DepthAlong::kRow, DepthAlong::kColumn>(
            sums, tiles, left < Stage::kRows ? left : Stage::kRows, reinterpret_cast<const Element*>(weights) + patch0,
            kWeightPitch, staging + buffer * Stage::kElements, Stage::kPitch);
        if (chunk + 1 < chunks) return;
        WarpTiles all = tiles;
        all.rows = ~0u;  // includes rows of padding, which are stored as zeros
        for_each_pair(sums, all, [&](int row, int column, float first, float second) {
          if (first_token + row >= arguments.tokens) return;
          const bool real = mask.real(row);
          store_pair(arguments.grouped.row(pair, first_token + row), column0 + column, arguments.width,
                     real ? first : 0.0f, real ? second : 0.0f);
        });
      });
}

template <class Element, int kRowTiles>
__device__ __forceinline__ void zero_padding(const ForwardArguments<Element>& arguments, std::int64_t pair,
                                             int first_token, const TileMask<16 * kRowTiles>& mask) {
  const int rows = arguments.tokens - first_token < 16 * kRowTiles ? arguments.tokens - first_token : 16 * kRowTiles;
  for (int row = 0; row < rows; ++row) {
    if (mask.real(row)) continue;
    const std::int64_t token_index = pair * arguments.tokens + first_token + row;
    if (arguments.row_statistics != nullptr && threadIdx.x < kRowStatistics) {
      arguments.row_statistics[token_index * kRowStatistics + threadIdx.x] = 0.0f;
    }
    for (int patch = threadIdx.x; arguments.weights != nullptr && patch < arguments.patches; patch += kThreads) {
      arguments.weights[token_index * arguments.patches + patch] = 0.0f;
    }
    for (int column = threadIdx.x; !mask.any() && column < arguments.width; column += kThreads) {
      arguments.grouped.row(pair, first_token + row)[column] = from_float<Element>(0.0f);
    }
  }
}

template <class Element, int kRowTiles, int kCapacity>
__global__ void __launch_bounds__(kThreads, 2) sparsify_group_forward_kernel(ForwardArguments<Element> arguments) {
  using Layout = ForwardLayout<Element, kRowTiles, kCapacity>;
  TESSERA_DYNAMIC_SHARED(shared);
  float* const similarities = reinterpret_cast<float*>(shared);
  Element* const row_staging = reinterpret_cast<Element*>(shared + Layout::kSimilarityBytes);
  Element* const width_staging = Layout::kOverlaps ? reinterpret_cast<Element*>(shared) : row_staging;

  const std::int64_t pair = blockIdx.x / arguments.token_tiles;
  const int first_token = static_cast<int>(blockIdx.x % arguments.token_tiles) * Layout::kTokens;
  const TileMask<Layout::kTokens> mask(arguments.mask, pair, arguments.tokens, first_token);
  zero_padding<Element, kRowTiles>(arguments, pair, first_token, mask);
  if (!mask.any()) return;

  compute_similarities<Element, kRowTiles, kCapacity>(arguments, pair, first_token, mask, similarities, width_staging);
  for (int row = threadIdx.x / 32; row < Layout::kTokens; row += kWarps) {
    weigh_row<Element, kCapacity>(arguments, pair * arguments.tokens + first_token + row, mask.real(row),
                                  similarities + row * Layout::kPitch);
  }
  __syncthreads();
  group_patches<Element, kRowTiles, kCapacity>(arguments, pair, first_token, mask, similarities, row_staging);
}

template <class Element, int kRowTiles, int kCapacity>
Status start(const SparsifyGroupForward& given, void* stream) {
  using Layout = ForwardLayout<Element, kRowTiles, kCapacity>;
  const SparsifyGroupProblem& problem = given.problem;
  const std::int64_t token_tiles = (problem.tokens + Layout::kTokens - 1) / Layout::kTokens;
  if (token_tiles * problem.batch > kMostBlocks)
    return Status::failure("sparsify_group: batch times tokens is too large");
  ForwardArguments<Element> arguments;
  arguments.tokens = static_cast<int>(problem.tokens);
  arguments.patches = static_cast<int>(problem.patches);
  arguments.width = static_cast<int>(problem.width);
  arguments.token_tiles = static_cast<int>(token_tiles);
  arguments.rules = row_rules(problem);
  arguments.aligned = aligned_rows(given.text_tokens, problem.width, problem.type) &&
                      aligned_rows(given.image_tokens, problem.width, problem.type);
  arguments.text = matrices<Element>(given.text_tokens);
  arguments.image = matrices<Element>(given.image_tokens);
  arguments.grouped = matrices<Element>(given.grouped);
  arguments.mask = given.text_mask;
  arguments.row_statistics = given.row_statistics;
  arguments.weights = given.weights;
  return launch("sparsify_group forward", sparsify_group_forward_kernel<Element, kRowTiles, kCapacity>,
                dim3(static_cast<unsigned>(token_tiles * problem.batch)), kThreads, Layout::kBytes, stream, arguments);
}

template <class Element>
Status start(const SparsifyGroupForward& given, void* stream) {
  if (given.problem.patches <= 256) return start<Element, 4, 256>(given, stream);
  if (given.problem.patches <= 640) return start<Element, 2, 640>(given, stream);
  return start<Element, 1, 1024>(given, stream);
}

}  // namespace

namespace TESSERA_DEVICE_NAMESPACE {

Status sparsify_group_forward(const SparsifyGroupForward& arguments, void* stream) {
  const SparsifyGroupProblem& problem = arguments.problem;
  if (Status status = check(arguments); !status.ok() || problem.batch == 0 || problem.tokens == 0) return status;
  if (problem.patches > kMostPatchesOnGpu) {
    return Status::failure("sparsify_group: patches must be at most " + std::to_string(kMostPatchesOnGpu) +
                           " on a GPU, but is " + std::to_string(problem.patches));
  }
  return problem.type == DataType::kBfloat16 ? start<Bfloat16>(arguments, stream) : start<float>(arguments, stream);
}

}  // namespace TESSERA_DEVICE_NAMESPACE
}  // namespace tessera::kernels
