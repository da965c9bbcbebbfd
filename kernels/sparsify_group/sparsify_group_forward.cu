// The kernel for most problems on Hopper GPUs is in sparsify_group_forward_hopper.cu.
// Forward: A block of 8 warps processes one pair and a tile of its tokens: up to 80 tokens for up to 256 patches, 32 for up to 640, and 16
// for up to 1,024, or fewer if they do not fit into shared memory (configurations.h).
//   1. Compute S = T V^T for all patches. T and V are read once, in slices of 128 or 64 bytes of each row, through a ring of buffers. A
//      warp has the similarities of all tokens of the tile and of every eighth group of 8 patches, in registers.
//   2. Find the minimum and the maximum of each row, then the weights and their sum. Warps exchange these numbers through shared memory, in
//      the order of the warps. Then the weights go to shared memory, while the first slices of step 3 arrive.
//   3. Compute grouped = A V, a slice at a time. V is read a second time, from the second-level cache. A unit of a warp's work is 16 tokens
//      and up to 32 columns.
// Global memory traffic per pair: T once, V twice, grouped once, and 12 bytes of statistics per token. Rows of padding are not read, and
// 16-row tiles without a real token are not multiplied. bfloat16 and float32 use tensor cores (device/tensor_core.h).
#include "kernels/sparsify_group/blocks.h"

namespace tessera::kernels {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;

template <class Element>
struct ForwardArguments : CommonArguments {
  using CommonArguments::CommonArguments;
  Matrices<const Element> text, image;
  Matrices<Element> grouped;
  float* row_statistics;
  float* all_weights;
};

template <class Element, class Constants>
struct ForwardBlock {
  static constexpr int kRowTiles = Constants::kRowTiles, kColumnTiles = Constants::kColumnTiles, kSliceBytes = Constants::kSliceBytes;
  static constexpr int kSliceColumns = kSliceBytes / static_cast<int>(sizeof(Element));
  using Product = SliceProduct<Element, kSliceBytes, kRowTiles, kColumnTiles>;
  using Similarities = float[kRowTiles][kColumnTiles][4];

  const ForwardArguments<Element>& arguments;
  const std::int64_t pair;
  const int first_token;
  const TileMask mask;
  const Product product;
  RowNumbers* const numbers;
  Element* const weights;

  __device__ __forceinline__ void copy_image(int step, unsigned char* buffer) const {
    copy_slice<kThreads, kSliceBytes>(buffer, arguments.image.row(pair, 0), arguments.image.row_stride, step * kSliceColumns,
                                      arguments.width, arguments.patch_rows(), arguments.aligned_inputs,
                                      [&](int row) { return row < arguments.patches; });
  }

  __device__ __forceinline__ void compute_similarities(Similarities& sums, const Ring& ring) const {
    const int text_offset = arguments.patch_rows() * kSliceBytes;
    const auto load = [&](int step, unsigned char* buffer) {
      copy_image(step, buffer);
      copy_slice<kThreads, kSliceBytes>(buffer + text_offset, arguments.text.row(pair, first_token), arguments.text.row_stride,
                                        step * kSliceColumns, arguments.width, arguments.tile_tokens(), arguments.aligned_inputs,
                                        [&](int row) { return mask.real(row); });
    };
    clear(sums);
    ring.start(load);
    ring.run(load, [&](int, const unsigned char* buffer) { product.accumulate(sums, buffer + text_offset, buffer, arguments.tf32); });
  }

  /// Whether patch 2 (lane % 4) + e of the warp's tile j exists.
  __device__ __forceinline__ bool exists(int j, int e) const {
    return product.column(j) + 2 * static_cast<int>(threadIdx.x % 4) + e < arguments.patches;
  }

  /// Finds the minimum and the maximum of each row. `partial` has room for two floats for each row and warp.
  __device__ __forceinline__ void find_range(const Similarities& sums, float2* partial) const {
    product.for_each_row([&](int i, int h, int row) {
      float lowest = kInfinity, highest = -kInfinity, check = 0.0f;  // `check` becomes NaN if a similarity is NaN or infinite
#pragma unroll
      for (int j = 0; j < kColumnTiles; ++j) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const float value = sums[i][j][2 * h + e];
          lowest = exists(j, e) ? fminf(lowest, value) : lowest;
          highest = exists(j, e) ? fmaxf(highest, value) : highest;
          check += exists(j, e) ? value * 0.0f : 0.0f;
        }
      }
      for (int distance = 1; distance <= 2; ++distance) {
        lowest = fminf(lowest, __shfl_xor_sync(kAllLanes, lowest, distance));
        highest = fmaxf(highest, __shfl_xor_sync(kAllLanes, highest, distance));
      }
      check = row_sum(check);
      if (threadIdx.x % 4 == 0) partial[row * kWarps + product.warp] = {lowest + check, highest + check};
    });
    __syncthreads();
    const int row = threadIdx.x;
    if (row < arguments.tile_tokens() && mask.real(row)) {
      float lowest = kInfinity, highest = -kInfinity;  // NaN once a warp's number is NaN
      for (int warp = 0; warp < kWarps; ++warp) {
        const float2 range = partial[row * kWarps + warp];
        lowest = range.x < lowest || range.x != range.x ? range.x : lowest;
        highest = range.y > highest || range.y != range.y ? range.y : highest;
      }
      numbers[row].lowest = lowest;
      numbers[row].highest = highest;
      numbers[row].cut = arguments.softmax ? 0.0f : kept_from(highest - lowest, arguments.threshold);
    }
    __syncthreads();
  }

  /// Replaces the similarities by weights that are not yet normalized, and finds their sums. `partial` has room for a float for each row
  /// and warp.
  __device__ __forceinline__ void weigh(Similarities& sums, float* partial) const {
    product.for_each_row([&](int i, int h, int row) {
      const float lowest = numbers[row].lowest, highest = numbers[row].highest, cut = numbers[row].cut;
      float sum = 0.0f;
#pragma unroll
      for (int j = 0; j < kColumnTiles; ++j) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& value = sums[i][j][2 * h + e];
          const float above = value - lowest;
          const float kept = arguments.softmax ? expf((value - highest) * arguments.inverse_temperature) : above < cut ? 0.0f : above;
          value = exists(j, e) ? kept : 0.0f;
          sum += value;
        }
      }
      sum = row_sum(sum);
      if (threadIdx.x % 4 == 0) partial[row * kWarps + product.warp] = sum;
    });
    __syncthreads();
    const int row = threadIdx.x;
    if (row < arguments.tile_tokens() && mask.real(row)) {
      float sum = 0.0f;
      for (int warp = 0; warp < kWarps; ++warp) sum += partial[row * kWarps + warp];
      numbers[row].scale = 1.0f / sum;
      if (arguments.row_statistics != nullptr) {
        float* const to = arguments.row_statistics + (pair * arguments.tokens + first_token + row) * kRowStatistics;
        to[0] = numbers[row].lowest;
        to[1] = numbers[row].highest;
        to[2] = sum;
      }
    }
    __syncthreads();
  }

  /// Normalizes the weights and writes them to shared memory, with zeros for padding and past the last patch.
  __device__ __forceinline__ void put_weights(const Similarities& sums) const {
    const float uniform = 1.0f / static_cast<float>(arguments.patches);
    product.for_each_row([&](int i, int h, int row) {
      const bool real = mask.real(row), flat = !arguments.softmax && is_flat(numbers[row].lowest, numbers[row].highest);
      const float scale = numbers[row].scale;
#pragma unroll
      for (int j = 0; j < kColumnTiles; ++j) {
        if (product.column(j) >= arguments.patch_rows()) continue;
        const int column = product.column(j) + 2 * static_cast<int>(threadIdx.x % 4);
        float values[2];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          values[e] = real && exists(j, e) ? (flat ? uniform : sums[i][j][2 * h + e] * scale) : 0.0f;
          if (arguments.all_weights != nullptr && real && exists(j, e)) {
            arguments.all_weights[(pair * arguments.tokens + first_token + row) * arguments.patches + column + e] = values[e];
          }
        }
        word_at<Pair<Element>>(weights + row * arguments.weight_pitch + column) =
            Pair<Element>{{from_float<Element>(values[0]), from_float<Element>(values[1])}};
      }
    });
  }

  __device__ __forceinline__ void group_patches(int step, const unsigned char* buffer) const {
    using Units = PatchUnits<Element, kRowTiles, kSliceBytes>;
    for (int unit = product.warp; unit < arguments.row_tiles * Units::kPerRow; unit += kWarps)
      put_patch_products(*this, static_cast<const Element*>(weights), arguments.grouped, unit, step, buffer);
  }

  __device__ __forceinline__ void run(unsigned char* shared) const {
    const int steps = (arguments.width + kSliceColumns - 1) / kSliceColumns;
    Similarities sums;
    compute_similarities(
        sums, {shared + arguments.similarity_ring, arguments.similarity_stage_bytes, arguments.similarity_stages, steps});
    __syncthreads();  // the second ring and the weights overwrite the first ring
    const Ring ring{shared + arguments.product_ring, arguments.product_stage_bytes, arguments.product_stages, steps};
    const auto load = [&](int step, unsigned char* buffer) { copy_image(step, buffer); };
    ring.start(load);
    unsigned char* const unused = ring.stage(ring.stages - 1);  // until ring.run() fills it
    find_range(sums, reinterpret_cast<float2*>(unused));
    weigh(sums, reinterpret_cast<float*>(unused));
    put_weights(sums);
    ring.run(load, [&](int step, const unsigned char* buffer) { group_patches(step, buffer); });
  }
};

/// Writes zeros for the padding among the tile's tokens.
template <class Element>
__device__ __forceinline__ void zero_padding(const ForwardArguments<Element>& arguments, std::int64_t pair, int first_token,
                                             const TileMask& mask) {
  const int left = arguments.tokens - first_token, rows = left < arguments.tile_tokens() ? left : arguments.tile_tokens();
  for (int row = 0; row < rows; ++row) {
    if (mask.real(row)) continue;
    const std::int64_t token_index = pair * arguments.tokens + first_token + row;
    if (arguments.row_statistics != nullptr && threadIdx.x < kRowStatistics) {
      arguments.row_statistics[token_index * kRowStatistics + threadIdx.x] = 0.0f;
    }
    for (int patch = threadIdx.x; arguments.all_weights != nullptr && patch < arguments.patches; patch += kThreads) {
      arguments.all_weights[token_index * arguments.patches + patch] = 0.0f;
    }
    for (int column = threadIdx.x; !mask.any() && column < arguments.width; column += kThreads) {
      arguments.grouped.row(pair, first_token + row)[column] = from_float<Element>(0.0f);
    }
  }
}

// With bfloat16, two blocks share a multiprocessor. float32 needs more registers, for the two parts of each operand.
template <class Element, class Constants>
__global__ void __launch_bounds__(kThreads, sizeof(Element) == 2 ? 2 : 1)
    sparsify_group_forward_kernel(ForwardArguments<Element> arguments) {
  using Block = ForwardBlock<Element, Constants>;
  TESSERA_DYNAMIC_SHARED(shared);
  const std::int64_t pair = blockIdx.x / arguments.token_tiles;
  const int first_token = static_cast<int>(blockIdx.x % arguments.token_tiles) * arguments.tile_tokens();
  const TileMask mask(arguments, pair, first_token);
  zero_padding<Element>(arguments, pair, first_token, mask);
  if (!mask.any()) return;
  const int warp = threadIdx.x / 32;
  const typename Block::Product product{mask.row_tiles(), warp, Block::Product::column_tiles(warp, arguments.patches)};
  const Block block{arguments,
                    pair,
                    first_token,
                    mask,
                    product,
                    reinterpret_cast<RowNumbers*>(shared),
                    reinterpret_cast<Element*>(shared + arguments.weights)};
  block.run(shared);
}

template <class Element>
Status start(const SparsifyGroupForward& given, void* stream) {
  const SparsifyGroupProblem& problem = given.problem;
  const SparsifyGroupPlan plan = choose_plan(problem, Pass::kForward, current_device());
  if (plan.token_tiles * problem.batch > kMostBlocks) return Status::failure("sparsify_group: batch times tokens is too large");
  ForwardArguments<Element> arguments(problem, plan, given.text_mask);
  arguments.aligned_inputs = aligned_rows(given.text_tokens, problem.width, problem.type) &&
                             aligned_rows(given.image_tokens, problem.width, problem.type);
  arguments.aligned_outputs = aligned_rows(given.grouped, problem.width, problem.type);
  arguments.text = matrices<Element>(given.text_tokens);
  arguments.image = matrices<Element>(given.image_tokens);
  arguments.grouped = matrices<Element>(given.grouped);
  arguments.row_statistics = given.row_statistics;
  arguments.all_weights = given.weights;
  return with_constants(plan.configuration, [&](auto constants) {
    return launch("sparsify_group forward", sparsify_group_forward_kernel<Element, decltype(constants)>,
                  dim3(static_cast<unsigned>(plan.token_tiles * problem.batch)), kThreads, plan.bytes, stream, arguments);
  });
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
  const SparsifyGroupHopperPlan hopper = choose_hopper_plan(problem, Pass::kForward, current_device());
  if (hopper.configuration != nullptr && copies_tiles(problem, arguments.text_tokens, problem.tokens) &&
      copies_tiles(problem, arguments.image_tokens, problem.patches) && copies_tiles(problem, arguments.grouped, problem.tokens)) {
    return sparsify_group_forward_hopper(arguments, hopper, stream);
  }
  if (names_hopper_configuration(problem)) return hopper_configuration_fails(problem);
  return problem.type == DataType::kBfloat16 ? start<Bfloat16>(arguments, stream) : start<float>(arguments, stream);
}

}  // namespace TESSERA_DEVICE_NAMESPACE
}  // namespace tessera::kernels
