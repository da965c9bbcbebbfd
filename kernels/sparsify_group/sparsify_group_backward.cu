// Backward: A block of 16 warps (8 for float32, see kWarps) processes one pair. It loops over tiles of the pair's
// tokens (64 tokens for up to 256 patches, otherwise 16). T are the tokens, V the patches, and C the grouped patches.
// For each tile:
//   1. Compute S = T V^T again, and dA = dC V^T. V is read once for both. S and dA go to shared memory as float32.
//   2. With one warp per row, replace S by the weights a, and dA by the gradient ds of the similarities, in place.
//   3. Compute dT = dS V.
//   4. Compute dV += A^T dC + dS^T T.
// A pair's dV belongs to one block, so no atomics are needed, and results are the same in every run. If there are
// several tiles of tokens, dV is summed in float32. A float32 dV is summed in place. A bfloat16 dV is summed in a
// workspace of [blocks, P, D]; the grid is then limited to kMostBlocksWithSums, and a block processes several pairs.
// Global memory traffic per pair: T and dC twice, V three times (mostly from the L2 cache), dT and dV once.
#include "kernels/sparsify_group/blocks.h"

namespace tessera::kernels {
namespace {

/// Step 1 sums two matrices in registers. With 16 warps there are 128 registers per thread, and the float32 sums and
/// operands do not fit (the inner loop spilled a dozen sums). With 8 warps there are 255 registers, and they fit.
template <class Element>
constexpr int kWarps = sizeof(Element) == 4 ? 8 : 16;
template <class Element>
constexpr int kThreads = 32 * kWarps<Element>;
constexpr std::int64_t kMostBlocksWithSums = 264;  // two per multiprocessor of an H100

template <class Element>
struct BackwardArguments {
  int batch, tokens, patches, width;
  RowRules rules;
  bool aligned;
  Matrices<const Element> text, image, grad_grouped;
  Matrices<Element> grad_text, grad_image;
  const std::uint8_t* mask;
  const float* row_statistics;
  float* sums;  // [gridDim.x, P, D]; null if dV is summed in place
};

/// kPassTiles is the number of 8-column tiles that a warp computes in one pass of step 1.
template <class Element, int kRowTiles, int kCapacity, int kPassTiles>
struct BackwardLayout {
  static constexpr int kTokens = 16 * kRowTiles;
  static constexpr int kPassPatches = 8 * kPassTiles * kWarps<Element>;
  static constexpr int kPitch = kCapacity + 4;
  static constexpr int kMatrixFloats = kTokens * kPitch;
  static constexpr int kMatricesBytes = 2 * kMatrixFloats * 4;
  static constexpr int kWidthStageElements = (2 * kTokens + kPassPatches) * WidthStage<Element>::kPitch;
  static constexpr int kWidthStageBytes = 2 * kWidthStageElements * static_cast<int>(sizeof(Element));
  static constexpr int kRowStageBytes = 2 * RowStage<Element>::kElements * static_cast<int>(sizeof(Element));
  static constexpr bool kOverlaps = kCapacity <= kPassPatches;
  static_assert(!kOverlaps || kWidthStageBytes <= kMatricesBytes, "the staging area must fit over the matrices");
  static constexpr int kBytes =
      kMatricesBytes + (kOverlaps || kRowStageBytes > kWidthStageBytes ? kRowStageBytes : kWidthStageBytes);
  static_assert(kBytes <= kSparsifyGroupBlockMemory);
  static constexpr int kElementPitch = kPitch * 4 / static_cast<int>(sizeof(Element));
};

template <class Element, int kRowTiles, int kCapacity, int kPassTiles>
struct BackwardBlock {
  using Layout = BackwardLayout<Element, kRowTiles, kCapacity, kPassTiles>;
  using Mask = TileMask<Layout::kTokens>;

  const BackwardArguments<Element>& arguments;
  float* const s;   // [kTokens, kPitch]: first the similarities, then the weights
  float* const da;  // [kTokens, kPitch]: first the gradient of the weights, then the gradient of the similarities
  Element* const width_staging;
  Element* const row_staging;

  __device__ __forceinline__ void multiply_by_image(std::int64_t pair, int first_token, const Mask& mask) const {
    using Stage = WidthStage<Element>;
    const int warp = threadIdx.x / 32;
    const Element* const text = arguments.text.row(pair, first_token);
    const Element* const grad = arguments.grad_grouped.row(pair, first_token);
    const int steps = (arguments.width + Stage::kDepth - 1) / Stage::kDepth;
    for (int patch0 = 0; patch0 < arguments.patches; patch0 += Layout::kPassPatches) {
      const int left = arguments.patches - patch0;
      const int patches = left < Layout::kPassPatches ? left : Layout::kPassPatches;
      const Element* const image = arguments.image.row(pair, patch0);
      const WarpTiles tiles{0, 16, mask.row_tiles(), 8 * warp, 8 * kWarps<Element>, patches};
      float s_sums[kRowTiles][kPassTiles][4], da_sums[kRowTiles][kPassTiles][4];
      clear(s_sums);
      clear(da_sums);
      pipeline(
          steps,
          [&](int step, int buffer) {
            Element* const text_stage = width_staging + buffer * Layout::kWidthStageElements;
            Element* const grad_stage = text_stage + Layout::kTokens * Stage::kPitch;
            Element* const image_stage = grad_stage + Layout::kTokens * Stage::kPitch;
            const int column = step * Stage::kDepth;
            const auto real = [&](int row) { return mask.real(row); };
            stage<kThreads<Element>>(text_stage, Stage::kPitch, Layout::kTokens, 4, text, arguments.text.row_stride,
                                     column, arguments.width, arguments.aligned, real);
            stage<kThreads<Element>>(grad_stage, Stage::kPitch, Layout::kTokens, 4, grad,
                                     arguments.grad_grouped.row_stride, column, arguments.width, arguments.aligned,
                                     real);
            stage<kThreads<Element>>(image_stage, Stage::kPitch, rounded_up(patches, 8), 4, image,
                                     arguments.image.row_stride, column, arguments.width, arguments.aligned,
                                     [&](int row) { return row < patches; });
          },
          [&](int, int buffer) {
            const Element* const text_stage = width_staging + buffer * Layout::kWidthStageElements;
            const Element* const grad_stage = text_stage + Layout::kTokens * Stage::kPitch;
            const Element* const image_stage = grad_stage + Layout::kTokens * Stage::kPitch;
            accumulate<DepthAlong::kRow, DepthAlong::kRow>(s_sums, tiles, Stage::kDepth, text_stage, Stage::kPitch,
                                                           image_stage, Stage::kPitch);
            accumulate<DepthAlong::kRow, DepthAlong::kRow>(da_sums, tiles, Stage::kDepth, grad_stage, Stage::kPitch,
                                                           image_stage, Stage::kPitch);
          });
      put(s_sums, tiles, s + patch0);
      put(da_sums, tiles, da + patch0);
      __syncthreads();
    }
  }

  static __device__ __forceinline__ void put(const float (&sums)[kRowTiles][kPassTiles][4], const WarpTiles& tiles,
                                             float* to) {
    for_each_pair(sums, tiles, [&](int row, int column, float first, float second) {
      to[row * Layout::kPitch + column] = first;
      to[row * Layout::kPitch + column + 1] = second;
    });
  }

  /// Replaces a row of similarities by its weights, and the gradient of the weights by the gradient of the
  /// similarities. All lanes of a warp call this function together.
  __device__ __forceinline__ void differentiate_row(std::int64_t token_index, bool real, float* s_row,
                                                    float* da_row) const {
    constexpr int kValues = kCapacity / 32;
    const int lane = threadIdx.x % 32;
    float weights[kValues], gradients[kValues];
#pragma unroll
    for (int i = 0; i < kValues; ++i) weights[i] = gradients[i] = 0.0f;
    if (real) {
      const float* const statistics = arguments.row_statistics + token_index * kRowStatistics;
      const float lowest = statistics[0], highest = statistics[1], scale = 1.0f / statistics[2];
      const bool softmax = arguments.rules.softmax;
      const bool flat = !softmax && is_flat(lowest, highest);
      const float cut = softmax ? 0.0f : kept_from(highest - lowest, arguments.rules.threshold);
      const float uniform = 1.0f / static_cast<float>(arguments.patches);
      // `weights` holds the similarities until the second of the two loops replaces them.
      float mean = 0.0f, kept_count = 0.0f, kept_sum = 0.0f, ties = 0.0f;
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        if (lane + 32 * i >= arguments.patches) continue;
        weights[i] = s_row[lane + 32 * i];
        gradients[i] = da_row[lane + 32 * i];
        const float above = weights[i] - lowest;
        const bool dropped = above < cut;
        const float weight = softmax   ? expf((weights[i] - highest) * arguments.rules.inverse_temperature) * scale
                             : dropped ? 0.0f
                                       : above * scale;
        mean += weight * gradients[i];
        kept_count += dropped ? 0.0f : 1.0f;
        kept_sum += dropped ? 0.0f : gradients[i];
        ties += above <= 0.0f ? 1.0f : 0.0f;
      }
      mean = warp_sum(mean);
      kept_count = warp_sum(kept_count);
      kept_sum = warp_sum(kept_sum);
      ties = warp_sum(ties);
      const float at_lowest = (mean * kept_count - kept_sum) * scale / fmaxf(ties, 1.0f);
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        if (lane + 32 * i >= arguments.patches) continue;
        const float above = weights[i] - lowest;
        if (softmax) {
          weights[i] = expf((weights[i] - highest) * arguments.rules.inverse_temperature) * scale;
          gradients[i] = weights[i] * (gradients[i] - mean) * arguments.rules.inverse_temperature;
        } else if (flat) {
          weights[i] = uniform;
          gradients[i] = 0.0f;
        } else {
          const bool dropped = above < cut;
          weights[i] = dropped ? 0.0f : above * scale;
          gradients[i] = (dropped ? 0.0f : (gradients[i] - mean) * scale) + (above <= 0.0f ? at_lowest : 0.0f);
        }
      }
    }
    __syncwarp();  // all lanes have read before the first one writes
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      reinterpret_cast<Element*>(s_row)[lane + 32 * i] = from_float<Element>(weights[i]);
      reinterpret_cast<Element*>(da_row)[lane + 32 * i] = from_float<Element>(gradients[i]);
    }
  }

  /// Computes dT = dS V.
  __device__ __forceinline__ void grad_text(std::int64_t pair, int first_token, const Mask& mask) const {
    using Stage = RowStage<Element>;
    constexpr int kGroups = kWarps<Element> / 8;  // groups of 8 warps; a group takes every kGroups-th 16-row tile
    constexpr int kRowsPerWarp = (kRowTiles + kGroups - 1) / kGroups;
    const int chunks = (arguments.patches + Stage::kRows - 1) / Stage::kRows;
    const int blocks = (arguments.width + Stage::kColumns - 1) / Stage::kColumns;
    const int warp = threadIdx.x / 32, first_tile = warp / 8;
    unsigned exists = 0, active = 0;
    for (int i = 0; i < kRowsPerWarp; ++i) {
      const int tile = first_tile + kGroups * i;
      exists |= tile < kRowTiles ? 1u << i : 0u;
      active |= tile < kRowTiles && (mask.row_tiles() >> tile & 1u) != 0 ? 1u << i : 0u;
    }
    const WarpTiles tiles{16 * first_tile, 16 * kGroups, active, 8 * (warp % 8), 0, Stage::kColumns};
    float sums[kRowsPerWarp][1][4];
    pipeline(
        chunks * blocks,
        [&](int step, int buffer) {
          const int patch0 = step % chunks * Stage::kRows;
          stage<kThreads<Element>>(row_staging + buffer * Stage::kElements, Stage::kPitch, Stage::kRows,
                                   Stage::kColumns * static_cast<int>(sizeof(Element)) / 16,
                                   arguments.image.row(pair, patch0), arguments.image.row_stride,
                                   step / chunks * Stage::kColumns, arguments.width, arguments.aligned,
                                   [&](int row) { return patch0 + row < arguments.patches; });
        },
        [&](int step, int buffer) {
          const int chunk = step % chunks, patch0 = chunk * Stage::kRows, column0 = step / chunks * Stage::kColumns;
          if (chunk == 0) clear(sums);
          const int left = rounded_up(arguments.patches - patch0, Fragments<Element>::kStep);
          accumulate<DepthAlong::kRow, DepthAlong::kColumn>(
              sums, tiles, left < Stage::kRows ? left : Stage::kRows, reinterpret_cast<const Element*>(da) + patch0,
              Layout::kElementPitch, row_staging + buffer * Stage::kElements, Stage::kPitch);
          if (chunk + 1 < chunks) return;
          WarpTiles all = tiles;
          all.rows = exists;  // includes rows of padding, which are stored as zeros
          for_each_pair(sums, all, [&](int row, int column, float first, float second) {
            if (first_token + row >= arguments.tokens) return;
            const bool real = mask.real(row);
            store_pair(arguments.grad_text.row(pair, first_token + row), column0 + column, arguments.width,
                       real ? first : 0.0f, real ? second : 0.0f);
          });
        });
  }

  /// Adds A^T dC + dS^T T to dV. `first` and `last` mark the pair's first and last tile that has real tokens. The first
  /// tile overwrites dV, so dV need not be initialized.
  __device__ __forceinline__ void grad_image(std::int64_t pair, int first_token, const Mask& mask, bool first,
                                             bool last) const {
    using Stage = RowStage<Element>;
    constexpr int kChunkTokens = Layout::kTokens < Stage::kRows ? Layout::kTokens : Stage::kRows;
    constexpr int kChunks = Layout::kTokens / kChunkTokens;
    const int blocks = (arguments.width + Stage::kColumns - 1) / Stage::kColumns;
    for (int round = 0; round < arguments.patches; round += 16 * kWarps<Element>) {
      const int patch0 = round + 16 * static_cast<int>(threadIdx.x / 32);
      const WarpTiles tiles{patch0, 0, patch0 < arguments.patches ? 1u : 0u, 0, 8, Stage::kColumns};
      float sums[1][Stage::kColumns / 8][4];
      pipeline(
          2 * kChunks * blocks,
          [&](int step, int buffer) {
            const int chunk = step % kChunks, part = step / kChunks % 2, token0 = chunk * kChunkTokens;
            const Matrices<const Element>& source = part == 0 ? arguments.grad_grouped : arguments.text;
            stage<kThreads<Element>>(row_staging + buffer * Stage::kElements, Stage::kPitch, kChunkTokens,
                                     Stage::kColumns * static_cast<int>(sizeof(Element)) / 16,
                                     source.row(pair, first_token + token0), source.row_stride,
                                     step / (2 * kChunks) * Stage::kColumns, arguments.width, arguments.aligned,
                                     [&](int row) { return mask.real(token0 + row); });
          },
          [&](int step, int buffer) {
            const int chunk = step % kChunks, part = step / kChunks % 2;
            if (chunk == 0 && part == 0) clear(sums);
            const Element* const a = reinterpret_cast<const Element*>(part == 0 ? s : da);
            accumulate<DepthAlong::kColumn, DepthAlong::kColumn>(
                sums, tiles, kChunkTokens, a + chunk * kChunkTokens * Layout::kElementPitch, Layout::kElementPitch,
                row_staging + buffer * Stage::kElements, Stage::kPitch);
            if (chunk + 1 == kChunks && part == 1) {
              add_to_image(pair, sums, tiles, step / (2 * kChunks) * Stage::kColumns, first, last);
            }
          });
    }
  }

  template <int kColumns>
  __device__ __forceinline__ void add_to_image(std::int64_t pair, const float (&sums)[1][kColumns][4],
                                               const WarpTiles& tiles, int column0, bool first, bool last) const {
    for_each_pair(sums, tiles, [&](int patch, int column, float value0, float value1) {
      if (patch >= arguments.patches) return;
      column += column0;
      Element* const row = arguments.grad_image.row(pair, patch);
      float* const sum_row =
          arguments.sums == nullptr
              ? nullptr
              : arguments.sums + (static_cast<std::int64_t>(blockIdx.x) * arguments.patches + patch) * arguments.width;
      if (!first) {
        if (column < arguments.width) value0 += sum_row != nullptr ? sum_row[column] : to_float(row[column]);
        if (column + 1 < arguments.width)
          value1 += sum_row != nullptr ? sum_row[column + 1] : to_float(row[column + 1]);
      }
      if (last || sum_row == nullptr) {
        store_pair(row, column, arguments.width, value0, value1);
      } else {
        store_pair(sum_row, column, arguments.width, value0, value1);
      }
    });
  }

  __device__ __forceinline__ void zero_text(std::int64_t pair, int first_token) const {
    const int left = arguments.tokens - first_token, rows = left < Layout::kTokens ? left : Layout::kTokens;
    for (int row = 0; row < rows; ++row) {
      for (int column = threadIdx.x; column < arguments.width; column += kThreads<Element>) {
        arguments.grad_text.row(pair, first_token + row)[column] = from_float<Element>(0.0f);
      }
    }
  }
  __device__ __forceinline__ void zero_image(std::int64_t pair) const {
    for (int row = 0; row < arguments.patches; ++row) {
      for (int column = threadIdx.x; column < arguments.width; column += kThreads<Element>) {
        arguments.grad_image.row(pair, row)[column] = from_float<Element>(0.0f);
      }
    }
  }

  /// Returns the first token of the last tile that has a real token; -1 if the pair has none.
  __device__ __forceinline__ int last_tile(std::int64_t pair) const {
    int last = -1;
    for (int token = 0; token < arguments.tokens; token += Layout::kTokens) {
      if (Mask(arguments.mask, pair, arguments.tokens, token).any()) last = token;
    }
    return last;
  }

  __device__ __forceinline__ void run(std::int64_t pair) const {
    const int last = last_tile(pair);
    bool first = true;
    for (int token = 0; token < arguments.tokens; token += Layout::kTokens) {
      const Mask mask(arguments.mask, pair, arguments.tokens, token);
      if (!mask.any()) {
        if (arguments.grad_text.data != nullptr) zero_text(pair, token);
        continue;
      }
      multiply_by_image(pair, token, mask);
      for (int row = threadIdx.x / 32; row < Layout::kTokens; row += kWarps<Element>) {
        differentiate_row(pair * arguments.tokens + token + row, mask.real(row), s + row * Layout::kPitch,
                          da + row * Layout::kPitch);
      }
      __syncthreads();
      if (arguments.grad_text.data != nullptr) grad_text(pair, token, mask);
      if (arguments.grad_image.data != nullptr) grad_image(pair, token, mask, first, token == last);
      first = false;
    }
    if (first && arguments.grad_image.data != nullptr) zero_image(pair);
  }
};

template <class Element, int kRowTiles, int kCapacity, int kPassTiles>
__global__ void __launch_bounds__(kThreads<Element>, 1)
    sparsify_group_backward_kernel(BackwardArguments<Element> arguments) {
  using Layout = BackwardLayout<Element, kRowTiles, kCapacity, kPassTiles>;
  TESSERA_DYNAMIC_SHARED(shared);
  float* const s = reinterpret_cast<float*>(shared);
  Element* const row_staging = reinterpret_cast<Element*>(shared + Layout::kMatricesBytes);
  Element* const width_staging = Layout::kOverlaps ? reinterpret_cast<Element*>(shared) : row_staging;
  const BackwardBlock<Element, kRowTiles, kCapacity, kPassTiles> block{arguments, s, s + Layout::kMatrixFloats,
                                                                       width_staging, row_staging};
  for (std::int64_t pair = blockIdx.x; pair < arguments.batch; pair += gridDim.x) block.run(pair);
}

/// Returns the number of tokens per tile for this number of patches.
std::int64_t tile_tokens(const SparsifyGroupProblem& problem) {
  return problem.patches <= 256 ? 64 : 16;
}

bool sums_in_workspace(const SparsifyGroupProblem& problem) {
  return problem.type == DataType::kBfloat16 && problem.tokens > tile_tokens(problem);
}

template <class Element, int kRowTiles, int kCapacity, int kPassTiles>
Status start(const SparsifyGroupBackward& given, void* stream) {
  using Layout = BackwardLayout<Element, kRowTiles, kCapacity, kPassTiles>;
  const SparsifyGroupProblem& problem = given.problem;
  const bool uses_workspace = sums_in_workspace(problem) && given.grad_image_tokens.data != nullptr;
  if (uses_workspace && given.workspace == nullptr)
    return Status::failure("sparsify_group: workspace is a null pointer");
  BackwardArguments<Element> arguments;
  arguments.batch = static_cast<int>(problem.batch);
  arguments.tokens = static_cast<int>(problem.tokens);
  arguments.patches = static_cast<int>(problem.patches);
  arguments.width = static_cast<int>(problem.width);
  arguments.rules = row_rules(problem);
  arguments.aligned = aligned_rows(given.text_tokens, problem.width, problem.type) &&
                      aligned_rows(given.image_tokens, problem.width, problem.type) &&
                      aligned_rows(given.grad_grouped, problem.width, problem.type);
  arguments.text = matrices<Element>(given.text_tokens);
  arguments.image = matrices<Element>(given.image_tokens);
  arguments.grad_grouped = matrices<Element>(given.grad_grouped);
  arguments.grad_text = matrices<Element>(given.grad_text_tokens);
  arguments.grad_image = matrices<Element>(given.grad_image_tokens);
  arguments.mask = given.text_mask;
  arguments.row_statistics = given.row_statistics;
  arguments.sums = uses_workspace ? static_cast<float*>(given.workspace) : nullptr;
  const std::int64_t blocks = uses_workspace ? std::min(problem.batch, kMostBlocksWithSums) : problem.batch;
  return launch("sparsify_group backward", sparsify_group_backward_kernel<Element, kRowTiles, kCapacity, kPassTiles>,
                dim3(static_cast<unsigned>(blocks)), kThreads<Element>, Layout::kBytes, stream, arguments);
}

template <class Element>
Status start(const SparsifyGroupBackward& given, void* stream) {
  constexpr int kPassTiles = 32 / kWarps<Element>;  // one pass covers 256 patches
  if (given.problem.patches <= 256) return start<Element, 4, 256, kPassTiles>(given, stream);
  return start<Element, 1, 1024, kPassTiles / 2>(given, stream);
}

}  // namespace

namespace TESSERA_DEVICE_NAMESPACE {

std::size_t sparsify_group_workspace(const SparsifyGroupProblem& problem, Pass pass) {
  if (pass == Pass::kForward || !sums_in_workspace(problem)) return 0;
  return static_cast<std::size_t>(std::min(problem.batch, kMostBlocksWithSums) * problem.patches * problem.width) *
         sizeof(float);
}

Status sparsify_group_backward(const SparsifyGroupBackward& arguments, void* stream) {
  const SparsifyGroupProblem& problem = arguments.problem;
  if (Status status = check(arguments); !status.ok() || problem.batch == 0) return status;
  if (problem.patches > kMostPatchesOnGpu || problem.batch > kMostBlocks) {
    return Status::failure("sparsify_group: on a GPU patches must be at most " + std::to_string(kMostPatchesOnGpu) +
                           " and batch at most " + std::to_string(kMostBlocks) + ", but they are " +
                           std::to_string(problem.patches) + " and " + std::to_string(problem.batch));
  }
  return problem.type == DataType::kBfloat16 ? start<Bfloat16>(arguments, stream) : start<float>(arguments, stream);
}

}  // namespace TESSERA_DEVICE_NAMESPACE
}  // namespace tessera::kernels
