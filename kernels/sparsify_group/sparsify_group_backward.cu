// The kernel for most problems on Hopper GPUs is in sparsify_group_backward_hopper.cu.
// Backward: A block of 16 warps processes one pair. It loops over tiles of the pair's tokens, which are as large as in the forward pass if
// shared memory allows it. T are the tokens, V the patches, C the grouped patches, and A the weights. For each tile:
//   1. Compute S = T V^T again, and dA = dC V^T, from slices of T, dC and V that pass through a ring of buffers. The first 8 warps compute
//      S, the others dA, as in the forward pass. Both stay in registers.
//   2. The first 8 warps write the weights A to shared memory. A weight of -0 marks a patch at the minimum. The others then find the sums
//      of each row that the gradient dS of the similarities needs, and write dS to shared memory.
//   3. For the same slices again: compute dT = dS V and dV = A^T dC + dS^T T. A warp computes dV for 16 patches; units of 16 tokens of dT
//      go first to warps that have no patches.
// A pair's dV belongs to one block, so no atomics are needed, and results are the same in every run. If there are several tiles of tokens,
// dV is summed in float32. A float32 dV is summed in place. A bfloat16 dV is summed in a workspace of [blocks, P, D]; the grid is then
// limited to kMostBlocksWithSums, and a block processes several pairs.
// Global memory traffic per pair and tile: T, dC and V twice (the second time mostly from the second-level cache), dT and dV once.
#include "kernels/sparsify_group/blocks.h"

namespace tessera::kernels {
namespace {

constexpr int kGroupWarps = 8;
constexpr int kWarps = 2 * kGroupWarps;
constexpr int kThreads = 32 * kWarps;
constexpr std::int64_t kMostBlocksWithSums = 264;  // two per multiprocessor of an H100

template <class Element>
struct BackwardArguments : CommonArguments {
  using CommonArguments::CommonArguments;
  std::int64_t batch;
  Matrices<const Element> text, image, grad_grouped;
  Matrices<Element> grad_text, grad_image;
  const float* row_statistics;
  float* sums;  // [gridDim.x, P, D]; null if dV is summed in place
};

template <class Element, class Constants>
struct BackwardBlock {
  static constexpr int kRowTiles = Constants::kRowTiles, kColumnTiles = Constants::kColumnTiles, kSliceBytes = Constants::kSliceBytes;
  static constexpr int kSliceColumns = kSliceBytes / static_cast<int>(sizeof(Element));
  static constexpr int kSliceTiles = kSliceColumns / 8;
  using Product = SliceProduct<Element, kSliceBytes, kRowTiles, kColumnTiles>;
  using Units = PatchUnits<Element, kRowTiles, kSliceBytes>;
  using Results = float[kRowTiles][kColumnTiles][4];

  const BackwardArguments<Element>& arguments;
  const std::int64_t pair;
  const int first_token;
  const TileMask mask;
  const Product product;
  RowNumbers* const numbers;
  Element* const weights;
  Element* const gradients;  // of the similarities

  static __device__ __forceinline__ bool computes_similarities() { return threadIdx.x < 32 * kGroupWarps; }
  __device__ __forceinline__ int text_offset() const { return arguments.patch_rows() * kSliceBytes; }
  __device__ __forceinline__ int grad_offset() const { return text_offset() + arguments.tile_tokens() * kSliceBytes; }

  /// Copies a slice of V, T and dC.
  __device__ __forceinline__ void copy_inputs(int step, unsigned char* buffer) const {
    const int column = step * kSliceColumns;
    const auto real = [&](int row) { return mask.real(row); };
    copy_slice<kThreads, kSliceBytes>(buffer, arguments.image.row(pair, 0), arguments.image.row_stride, column, arguments.width,
                                      arguments.patch_rows(), arguments.aligned_inputs,
                                      [&](int row) { return row < arguments.patches; });
    copy_slice<kThreads, kSliceBytes>(buffer + text_offset(), arguments.text.row(pair, first_token), arguments.text.row_stride, column,
                                      arguments.width, arguments.tile_tokens(), arguments.aligned_inputs, real);
    copy_slice<kThreads, kSliceBytes>(buffer + grad_offset(), arguments.grad_grouped.row(pair, first_token),
                                      arguments.grad_grouped.row_stride, column, arguments.width, arguments.tile_tokens(),
                                      arguments.aligned_inputs, real);
  }

  /// Reads the statistics of the forward pass.
  __device__ __forceinline__ void read_statistics() const {
    const int row = threadIdx.x;
    if (row >= arguments.tile_tokens() || !mask.real(row)) return;
    const float* const from = arguments.row_statistics + (pair * arguments.tokens + first_token + row) * kRowStatistics;
    numbers[row].lowest = from[0];
    numbers[row].highest = from[1];
    numbers[row].cut = arguments.softmax ? 0.0f : kept_from(from[1] - from[0], arguments.threshold);
    numbers[row].scale = 1.0f / from[2];
  }

  __device__ __forceinline__ bool is_flat_row(int row) const {
    return !arguments.softmax && is_flat(numbers[row].lowest, numbers[row].highest);
  }
  /// The lane's first column of the warp's tile j.
  __device__ __forceinline__ int lane_column(int j) const { return product.column(j) + 2 * static_cast<int>(threadIdx.x % 4); }

  /// Writes the weights to shared memory, with zeros for padding and past the last patch.
  __device__ __forceinline__ void put_weights(const Results& similarities) const {
    const float uniform = 1.0f / static_cast<float>(arguments.patches);
    product.for_each_row([&](int i, int h, int row) {
      const bool real = mask.real(row), flat = is_flat_row(row);
      const float lowest = numbers[row].lowest, highest = numbers[row].highest, cut = numbers[row].cut, scale = numbers[row].scale;
#pragma unroll
      for (int j = 0; j < kColumnTiles; ++j) {
        if (product.column(j) >= arguments.patch_rows()) continue;
        float values[2];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const float similarity = similarities[i][j][2 * h + e], above = similarity - lowest;
          const float weight = arguments.softmax ? expf((similarity - highest) * arguments.inverse_temperature) * scale
                               : flat            ? uniform
                               : above <= 0.0f   ? -0.0f
                               : above < cut     ? 0.0f
                                                 : above * scale;
          values[e] = real && lane_column(j) + e < arguments.patches ? weight : 0.0f;
        }
        word_at<Pair<Element>>(weights + row * arguments.weight_pitch + lane_column(j)) =
            Pair<Element>{{from_float<Element>(values[0]), from_float<Element>(values[1])}};
      }
    });
  }

  struct PatchWeight {
    float weight;
    bool at_lowest, kept;
  };
  __device__ __forceinline__ PatchWeight patch_weight(Element stored, float cut) const {
    const float weight = to_float(stored);
    const bool at_lowest = !arguments.softmax && weight == 0.0f && copysignf(1.0f, weight) < 0.0f;
    return {weight, at_lowest, at_lowest ? cut <= 0.0f : weight != 0.0f};
  }

  /// Finds the mean of each row of the weights' gradients, and the gradient of the minimum. `partial` has room for four floats for each row
  /// and warp of a group.
  __device__ __forceinline__ void find_means(const Results& weight_gradients, float4* partial) const {
    if (!computes_similarities()) {
      product.for_each_row([&](int i, int h, int row) {
        const bool real = mask.real(row);
        const float cut = numbers[row].cut;
        float mean = 0.0f, kept_count = 0.0f, kept_sum = 0.0f, ties = 0.0f;
#pragma unroll
        for (int j = 0; j < kColumnTiles; ++j) {
          if (product.column(j) >= arguments.patch_rows()) continue;
          const Pair<Element> pair_of_weights = word_at<Pair<Element>>(weights + row * arguments.weight_pitch + lane_column(j));
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            if (!real || lane_column(j) + e >= arguments.patches) continue;
            const PatchWeight patch = patch_weight(pair_of_weights.values[e], cut);
            const float gradient = weight_gradients[i][j][2 * h + e];
            mean += patch.weight * gradient;
            kept_count += patch.kept ? 1.0f : 0.0f;
            kept_sum += patch.kept ? gradient : 0.0f;
            ties += patch.at_lowest ? 1.0f : 0.0f;
          }
        }
        mean = row_sum(mean);
        kept_count = row_sum(kept_count);
        kept_sum = row_sum(kept_sum);
        ties = row_sum(ties);
        if (threadIdx.x % 4 == 0) partial[row * kGroupWarps + product.warp] = {mean, kept_count, kept_sum, ties};
      });
    }
    __syncthreads();
    const int row = threadIdx.x;
    if (row < arguments.tile_tokens() && mask.real(row)) {
      float mean = 0.0f, kept_count = 0.0f, kept_sum = 0.0f, ties = 0.0f;
      for (int warp = 0; warp < kGroupWarps; ++warp) {
        const float4 share = partial[row * kGroupWarps + warp];
        mean += share.x;
        kept_count += share.y;
        kept_sum += share.z;
        ties += share.w;
      }
      numbers[row].mean = mean;
      numbers[row].at_lowest = (mean * kept_count - kept_sum) * numbers[row].scale / fmaxf(ties, 1.0f);
    }
    __syncthreads();
  }

  /// Writes the gradients of the similarities to shared memory, with zeros for padding and past the last patch.
  __device__ __forceinline__ void put_gradients(const Results& weight_gradients) const {
    if (computes_similarities()) return;
    product.for_each_row([&](int i, int h, int row) {
      const bool real = mask.real(row), flat = is_flat_row(row);
      const float cut = numbers[row].cut, scale = numbers[row].scale, mean = numbers[row].mean, at_lowest = numbers[row].at_lowest;
#pragma unroll
      for (int j = 0; j < kColumnTiles; ++j) {
        if (product.column(j) >= arguments.patch_rows()) continue;
        const int place = row * arguments.weight_pitch + lane_column(j);
        const Pair<Element> pair_of_weights = word_at<Pair<Element>>(weights + place);
        float values[2];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const PatchWeight patch = patch_weight(pair_of_weights.values[e], cut);
          const float above_mean = weight_gradients[i][j][2 * h + e] - mean;
          const float gradient = arguments.softmax ? patch.weight * above_mean * arguments.inverse_temperature
                                 : flat            ? 0.0f
                                                   : (patch.kept ? above_mean * scale : 0.0f) + (patch.at_lowest ? at_lowest : 0.0f);
          values[e] = real && lane_column(j) + e < arguments.patches ? gradient : 0.0f;
        }
        word_at<Pair<Element>>(gradients + place) = Pair<Element>{{from_float<Element>(values[0]), from_float<Element>(values[1])}};
      }
    });
  }

  /// Returns one bit for each unit of dT that this warp computes. Warps without patches come first, with two units each; then all warps do.
  __device__ __forceinline__ unsigned text_units() const {
    const int warp = threadIdx.x / 32, units = arguments.row_tiles * Units::kPerRow;
    const int patch_tiles = arguments.patch_rows() / 16, idle = patch_tiles < kWarps ? kWarps - patch_tiles : 0;
    unsigned mine = 0;
    for (int unit = 0; unit < units; ++unit) {
      const int from_last = unit < 2 * idle ? unit % idle : (unit - idle) % kWarps;
      mine |= kWarps - 1 - from_last == warp ? 1u << unit : 0u;
    }
    return mine;
  }

  /// Computes a slice of dT = dS V.
  __device__ __forceinline__ void grad_text(unsigned units, int step, const unsigned char* buffer) const {
    for (; units != 0; units &= units - 1)
      put_patch_products(*this, static_cast<const Element*>(gradients), arguments.grad_text, __ffs(static_cast<int>(units)) - 1, step, buffer);
  }

  /// Adds a slice of A^T dC + dS^T T to dV. `first` and `last` mark the pair's first and last tile that has real tokens. The first tile
  /// overwrites dV, so dV need not be initialized.
  __device__ __forceinline__ void grad_image(int step, const unsigned char* buffer, bool first, bool last) const {
    using Core = TensorCore<Element>;
    const int column0 = step * kSliceColumns;
    const bool tf32 = arguments.tf32;
    for (int patch0 = 16 * static_cast<int>(threadIdx.x / 32); patch0 < arguments.patches; patch0 += 16 * kWarps) {
      float sums[kSliceTiles][4];
      clear(sums);
      for (int i = 0; i < arguments.row_tiles; ++i) {
        if (!product.has_row(i)) continue;
#pragma unroll
        for (int k = 16 * i; k < 16 * i + 16; k += Core::kDepth) {
          typename Core::B b[kSliceTiles];
          Core::template load_columns<kSliceBytes>(b, buffer + grad_offset(), 0, k, tf32);
          Core::multiply(sums, 0, Core::load_columns(weights, arguments.weight_pitch, patch0, k, tf32), b, kSliceTiles, tf32);
          Core::template load_columns<kSliceBytes>(b, buffer + text_offset(), 0, k, tf32);
          Core::multiply(sums, 0, Core::load_columns(gradients, arguments.weight_pitch, patch0, k, tf32), b, kSliceTiles, tf32);
        }
      }
      if (first && last) {
        put_patch_rows(sums, patch0, column0);
      } else {
        add_to_image(sums, patch0, column0, first, last);
      }
    }
  }
  __device__ __forceinline__ void put_patch_rows(const float (&sums)[kSliceTiles][4], int patch0, int column0) const {
    store_tiles<Element>(sums, column0, arguments.width, arguments.aligned_outputs, [&](int row) {
      return patch0 + row < arguments.patches ? arguments.grad_image.row(pair, patch0 + row) : nullptr;
    });
  }
  __device__ __forceinline__ void add_to_image(float (&sums)[kSliceTiles][4], int patch0, int column0, bool first, bool last) const {
    const bool in_place = arguments.sums == nullptr;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int patch = patch0 + static_cast<int>(threadIdx.x % 32 / 4) + 8 * h;
      if (patch >= arguments.patches) continue;
      float* const sum_row =
          in_place ? nullptr : arguments.sums + (static_cast<std::int64_t>(blockIdx.x) * arguments.patches + patch) * arguments.width;
      const Element* const row = arguments.grad_image.row(pair, patch);
#pragma unroll
      for (int j = 0; j < kSliceTiles; ++j) {
        const int column = column0 + 8 * j + 2 * static_cast<int>(threadIdx.x % 4);
        if (!first) {
          const float2 before =
              in_place ? load_pair(row, column, arguments.width, false) : load_pair(sum_row, column, arguments.width, false);
          sums[j][2 * h] += before.x;
          sums[j][2 * h + 1] += before.y;
        }
        if (!last && !in_place) store_pair(sum_row, column, arguments.width, sums[j][2 * h], sums[j][2 * h + 1]);
      }
    }
    if (last || in_place) put_patch_rows(sums, patch0, column0);
  }

  __device__ __forceinline__ void run(unsigned char* shared, bool first, bool last) const {
    const int steps = (arguments.width + kSliceColumns - 1) / kSliceColumns;
    const auto load = [&](int step, unsigned char* buffer) { copy_inputs(step, buffer); };
    Results results;  // S or dA
    clear(results);
    read_statistics();
    const Ring similarity_ring{shared + arguments.similarity_ring, arguments.similarity_stage_bytes, arguments.similarity_stages, steps};
    similarity_ring.start(load);
    similarity_ring.run(load, [&](int, const unsigned char* buffer) {
      product.accumulate(results, buffer + (computes_similarities() ? text_offset() : grad_offset()), buffer, arguments.tf32);
    });
    __syncthreads();  // the second ring and the weights overwrite the first ring
    const Ring ring{shared + arguments.product_ring, arguments.product_stage_bytes, arguments.product_stages, steps};
    ring.start(load);
    if (computes_similarities()) put_weights(results);
    __syncthreads();
    find_means(results, reinterpret_cast<float4*>(ring.stage(ring.stages - 1)));  // until ring.run() fills this buffer
    put_gradients(results);
    const unsigned units = arguments.grad_text.data == nullptr ? 0u : text_units();
    ring.run(load, [&](int step, const unsigned char* buffer) {
      grad_text(units, step, buffer);
      if (arguments.grad_image.data != nullptr) grad_image(step, buffer, first, last);
    });
    __syncthreads();  // the next tile overwrites the second ring
  }
};

template <class Element>
__device__ __forceinline__ void zero_rows(const Matrices<Element>& rows, std::int64_t pair, int first, int count, int width) {
  for (int row = 0; row < count; ++row) {
    for (int column = threadIdx.x; column < width; column += kThreads) rows.row(pair, first + row)[column] = from_float<Element>(0.0f);
  }
}

template <class Element, class Constants>
__device__ __forceinline__ void differentiate_pair(const BackwardArguments<Element>& arguments, std::int64_t pair, unsigned char* shared) {
  using Block = BackwardBlock<Element, Constants>;
  int last = -1;  // the first token of the last tile that has a real token
  for (int token = 0; token < arguments.tokens; token += arguments.tile_tokens()) {
    if (TileMask(arguments, pair, token).any()) last = token;
  }
  const int warp = threadIdx.x / 32 % kGroupWarps;
  Element* const weights = reinterpret_cast<Element*>(shared + arguments.weights);
  bool first = true;
  for (int token = 0; token < arguments.tokens; token += arguments.tile_tokens()) {
    const TileMask mask(arguments, pair, token);
    if (!mask.any()) {
      const int left = arguments.tokens - token;
      if (arguments.grad_text.data != nullptr)
        zero_rows(arguments.grad_text, pair, token, left < arguments.tile_tokens() ? left : arguments.tile_tokens(), arguments.width);
      continue;
    }
    const typename Block::Product product{mask.row_tiles(), warp, Block::Product::column_tiles(warp, arguments.patches)};
    const Block block{arguments, pair,    token,
                      mask,      product, reinterpret_cast<RowNumbers*>(shared),
                      weights,   weights + arguments.tile_tokens() * arguments.weight_pitch};
    block.run(shared, first, token == last);
    first = false;
  }
  if (first && arguments.grad_image.data != nullptr) zero_rows(arguments.grad_image, pair, 0, arguments.patches, arguments.width);
}

template <class Element, class Constants>
__global__ void __launch_bounds__(kThreads, 1) sparsify_group_backward_kernel(BackwardArguments<Element> arguments) {
  TESSERA_DYNAMIC_SHARED(shared);
  for (std::int64_t pair = blockIdx.x; pair < arguments.batch; pair += gridDim.x) {
    differentiate_pair<Element, Constants>(arguments, pair, shared);
  }
}

bool sums_in_workspace(const SparsifyGroupProblem& problem, const SparsifyGroupPlan& plan) {
  return problem.type == DataType::kBfloat16 && plan.token_tiles > 1;
}

template <class Element>
Status start(const SparsifyGroupBackward& given, void* stream) {
  const SparsifyGroupProblem& problem = given.problem;
  const SparsifyGroupPlan plan = choose_plan(problem, Pass::kBackward, current_device());
  const bool uses_workspace = sums_in_workspace(problem, plan) && given.grad_image_tokens.data != nullptr;
  if (uses_workspace && given.workspace == nullptr)
    return Status::failure("sparsify_group: workspace is a null pointer");
  BackwardArguments<Element> arguments(problem, plan, given.text_mask);
  arguments.aligned_inputs = aligned_rows(given.text_tokens, problem.width, problem.type) &&
                             aligned_rows(given.image_tokens, problem.width, problem.type) &&
                             aligned_rows(given.grad_grouped, problem.width, problem.type);
  arguments.aligned_outputs = aligned_rows(given.grad_text_tokens, problem.width, problem.type) &&
                              aligned_rows(given.grad_image_tokens, problem.width, problem.type);
  arguments.batch = problem.batch;
  arguments.text = matrices<Element>(given.text_tokens);
  arguments.image = matrices<Element>(given.image_tokens);
  arguments.grad_grouped = matrices<Element>(given.grad_grouped);
  arguments.grad_text = matrices<Element>(given.grad_text_tokens);
  arguments.grad_image = matrices<Element>(given.grad_image_tokens);
  arguments.row_statistics = given.row_statistics;
  arguments.sums = uses_workspace ? static_cast<float*>(given.workspace) : nullptr;
  const std::int64_t blocks = uses_workspace ? std::min(problem.batch, kMostBlocksWithSums) : problem.batch;
  return with_constants(plan.configuration, [&](auto constants) {
    return launch("sparsify_group backward", sparsify_group_backward_kernel<Element, decltype(constants)>,
                  dim3(static_cast<unsigned>(blocks)), kThreads, plan.bytes, stream, arguments);
  });
}

}  // namespace

namespace TESSERA_DEVICE_NAMESPACE {

std::size_t sparsify_group_workspace(const SparsifyGroupProblem& problem, Pass pass) {
  if (pass == Pass::kForward || !sums_in_workspace(problem, choose_plan(problem, pass, current_device()))) return 0;
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
  const SparsifyGroupHopperPlan hopper = choose_hopper_plan(problem, Pass::kBackward, current_device());
  if (hopper.configuration != nullptr && copies_tiles(problem, arguments.text_tokens, problem.tokens) &&
      copies_tiles(problem, arguments.image_tokens, problem.patches) && copies_tiles(problem, arguments.grad_grouped, problem.tokens) &&
      copies_tiles(problem, arguments.grad_text_tokens, problem.tokens) &&
      copies_tiles(problem, arguments.grad_image_tokens, problem.patches)) {
    return sparsify_group_backward_hopper(arguments, hopper, stream);
  }
  if (names_hopper_configuration(problem)) return hopper_configuration_fails(problem);
  return problem.type == DataType::kBfloat16 ? start<Bfloat16>(arguments, stream) : start<float>(arguments, stream);
}

}  // namespace TESSERA_DEVICE_NAMESPACE
}  // namespace tessera::kernels
