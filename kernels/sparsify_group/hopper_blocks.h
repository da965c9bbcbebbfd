#pragma once

// Code that the forward and backward kernels for Hopper GPUs share. A block has three warpgroups and processes one pair after another:
//   - A thread of warp 0 (the loader) copies slices of 64 columns of a pair's matrices into a ring of buffers: all slices for the
//     similarities (pass 1), and then all slices again for the products with the weights (pass 2, mostly from the second-level cache).
//   - Two warpgroups (the consumers) multiply. Roles are swapped compared with the kernels for other GPUs: patches are the rows of the
//     results, 64 for each tile, and tokens are the columns, so that 55 or 76 tokens need hardly any padding. A consumer has two tiles.
//   - A thread of warp 1 (the storer) copies results from the ring's buffers to global memory, and releases each buffer for the loader.
// Rows of padding are never read: the loader reads 8 tokens at a time if all of them are real, and otherwise one at a time, and gets zeros
// for the others, because it asks for a row outside of the array. So padding contributes 0 to products over tokens.
#include "kernels/device/hopper.h"
#include "kernels/sparsify_group/blocks.h"
#include "kernels/sparsify_group/hopper_plan.h"

namespace tessera::kernels {
namespace {

constexpr int kConsumers = 2, kConsumerThreads = kConsumers * kWarpgroup, kHopperThreads = kWarpgroup + kConsumerThreads;
constexpr int kTiles = 2;                     // tiles of 64 patches of a consumer
constexpr int kPartialSums = 4 * kConsumers;  // warps that share a token

/// An array [B, L, D] of tokens: boxes with all tokens of a pair, with 8 of them, and with one.
struct TokenMaps {
  TileMap all, group, row;
};

struct HopperArguments {
  TokenMaps text;
  TileMap image;  // boxes with all patches of a pair
  int batch, tokens, patches, slices;
  bool softmax;
  float threshold, inverse_temperature;
  const std::uint8_t* mask;
  SparsifyGroupHopperPlan plan;
};

inline Status make_token_maps(TokenMaps& maps, const ConstRows& tokens, const SparsifyGroupProblem& problem, int token_rows) {
  const TileSource source = tile_source(tokens, problem.batch, problem.tokens, problem.width);
  if (Status status = make_tile_map(maps.all, "sparsify_group", source, token_rows); !status.ok()) return status;
  if (Status status = make_tile_map(maps.group, "sparsify_group", source, 8); !status.ok()) return status;
  return make_tile_map(maps.row, "sparsify_group", source, 1);
}

/// Fills in what both passes need.
inline Status make_arguments(HopperArguments& arguments, const SparsifyGroupProblem& problem, const SparsifyGroupHopperPlan& plan,
                             const ConstRows& text, const ConstRows& image, const std::uint8_t* mask) {
  arguments.batch = static_cast<int>(problem.batch);
  arguments.tokens = static_cast<int>(problem.tokens);
  arguments.patches = static_cast<int>(problem.patches);
  arguments.slices = static_cast<int>((problem.width + kTileColumns - 1) / kTileColumns);
  arguments.softmax = problem.weights == PatchWeights::kSoftmax;
  arguments.threshold = problem.threshold;
  arguments.inverse_temperature = 1.0f / problem.softmax_temperature;
  arguments.mask = mask;
  arguments.plan = plan;
  const TileSource patches = tile_source(image, problem.batch, problem.patches, problem.width);
  if (Status status = make_tile_map(arguments.image, "sparsify_group", patches, plan.patch_rows); !status.ok()) return status;
  return make_token_maps(arguments.text, text, problem, plan.token_rows);
}

/// A thread of a consumer, with two tiles of 64 patches.
template <int kConsumer>
struct ConsumerThread {
  int index;  // in its warpgroup

  static __device__ __forceinline__ ConsumerThread here() { return {computed_here(static_cast<int>(threadIdx.x)) % kWarpgroup}; }
  __device__ __forceinline__ int lane() const { return index % 32; }
  __device__ __forceinline__ int warp_row() const { return index / 32 * 16; }
  /// The index among the threads, and among the warps, of both consumers.
  __device__ __forceinline__ int of_all() const { return kConsumer * kWarpgroup + index; }
  __device__ __forceinline__ int warp_of_all() const { return of_all() / 32; }
  /// The first of the 16 patches that the warp has in tile i.
  __device__ __forceinline__ int warp_patch(int i) const { return 64 * (kConsumer * kTiles + i) + warp_row(); }
  /// The patch and the token of result 4 j + 2 h + e in tile i.
  __device__ __forceinline__ int patch(int i, int h) const { return warp_patch(i) + lane() / 4 + 8 * h; }
  __device__ __forceinline__ int token(int j, int e) const { return 8 * j + 2 * (lane() % 4) + e; }
};

/// A block's memory, and what its warps do in both passes, for tiles of kColumns tokens.
template <int kColumns>
struct HopperBlock {
  static constexpr int kSums = kColumns / 2;  // of a thread and tile of 64 rows
  static constexpr int kTokenBlocks = kColumns / 8;
  static constexpr int kBlockRowBytes = kTokenBlocks * 128;  // of 8 patches and all tokens, in blocks of 8 x 8 elements

  const HopperArguments& common;
  unsigned char* const shared;

  __device__ __forceinline__ unsigned char* buffer(const RingPlace& place) const { return shared + place.buffer * common.plan.stage_bytes; }
  __device__ __forceinline__ unsigned char* text_tile(unsigned char* from) const { return from + common.plan.patch_rows * kTileRowBytes; }
  /// The third tile of a buffer in the backward pass: the gradients of the grouped patches, and then those of the tokens.
  __device__ __forceinline__ unsigned char* grad_tile(unsigned char* from) const {
    return text_tile(from) + common.plan.token_rows * kTileRowBytes;
  }
  __device__ __forceinline__ unsigned char* blocks() const { return shared + common.plan.blocks; }
  __device__ __forceinline__ RowNumbers* numbers() const { return reinterpret_cast<RowNumbers*>(shared + common.plan.numbers); }
  // The copies into a buffer are complete; the consumers have finished with it; and the loader may fill it again.
  __device__ __forceinline__ Barrier& full(const RingPlace& place) const { return barriers()[place.buffer]; }
  __device__ __forceinline__ Barrier& done(const RingPlace& place) const { return barriers()[common.plan.stages + place.buffer]; }
  __device__ __forceinline__ Barrier& free(const RingPlace& place) const { return barriers()[2 * common.plan.stages + place.buffer]; }
  __device__ __forceinline__ Barrier* barriers() const { return reinterpret_cast<Barrier*>(shared + common.plan.barriers); }

  __device__ __forceinline__ void start_barriers() const {
    if (threadIdx.x == 0) {
      for (RingPlace place; place.buffer < common.plan.stages; ++place.buffer) {
        full(place).start(1);
        done(place).start(kConsumerThreads);
        free(place).start(1);
      }
      fence_barriers();
    }
    __syncthreads();
  }

  __device__ __forceinline__ TileMask mask_of(int pair) const { return TileMask(common.mask, pair, common.tokens, 0, common.tokens); }

  // ---- Loader and storer ----

  __device__ __forceinline__ void load_image(const RingPlace& place, int pair, int slice, Keep keep) const {
    load_tile(buffer(place), common.image, full(place), {slice * kTileColumns, 0, 0, pair}, keep);
  }
  __device__ __forceinline__ void load_tokens(unsigned char* to, const TokenMaps& maps, const RingPlace& place, int pair, int slice,
                                              const TileMask& mask, Keep keep) const {
    const auto load = [&](const TileMap& map, int row, bool exists) {
      load_tile(to + row * kTileRowBytes, map, full(place), {slice * kTileColumns, exists ? row : common.tokens, 0, pair}, keep);
    };
    if (mask.all(common.tokens)) return load(maps.all, 0, true);
#pragma unroll 1
    for (int row = 0; row < common.plan.token_rows; row += 8) {
      const int tokens = common.tokens - row;
      const unsigned real = mask.eight(row), outside = tokens >= 8 ? 0u : tokens <= 0 ? 0xffu : 0xffu << tokens & 0xffu;
      if (real == 0 || (real | outside) == 0xffu) {
        load(maps.group, row, real != 0);
      } else {
#pragma unroll 1
        for (int i = 0; i < 8; ++i) load(maps.row, row + i, (real >> i & 1u) != 0);
      }
    }
  }

  /// Calls load(place, pair, slice, mask, pass) for each buffer to fill, in order, in one thread of the calling warp. load() announces its
  /// bytes.
  template <class Load>
  __device__ __forceinline__ void run_loader(Load load) const {
    RingPlace place;
#pragma unroll 1
    for (int pair = static_cast<int>(blockIdx.x); pair < common.batch; pair += static_cast<int>(gridDim.x)) {
      const TileMask mask = mask_of(pair);
      if (threadIdx.x % 32 == 0) {
#pragma unroll 1
        for (int step = 0; step < 2 * common.slices; ++step, place.next(common.plan.stages)) {
          free(place).wait(place.parity ^ 1u);
          load(place, pair, step % common.slices, mask, step / common.slices);
        }
      }
      __syncwarp();
    }
  }
  /// Calls store(place, pair, slice) in one thread for each buffer with results, and releases each buffer.
  template <class Store>
  __device__ __forceinline__ void run_storer(Store store) const {
    RingPlace place;
#pragma unroll 1
    for (int pair = static_cast<int>(blockIdx.x); pair < common.batch; pair += static_cast<int>(gridDim.x)) {
#pragma unroll 1
      for (int step = 0; step < 2 * common.slices; ++step, place.next(common.plan.stages)) {
        done(place).wait(place.parity);
        if (step >= common.slices) {
          store(place, pair, step - common.slices);
          commit_stores();
          wait_for_stores<0>();
        }
        free(place).arrive();
      }
    }
  }

  // ---- Consumers ----

  /// Waits for the threads of both consumers.
  static __device__ __forceinline__ void wait_for_consumers() {
    named_barrier<1>(kConsumerThreads);
  }

  /// The consumer's tile i of the patches in a buffer. A tile that does not exist is the first one; its results are ignored.
  template <int kConsumer>
  __device__ __forceinline__ Operand image_operand(const unsigned char* from, int i) const {
    const int row = 64 * (kConsumer * kTiles + i);
    return tile_operand(from + (row < common.plan.patch_rows ? row : 0) * kTileRowBytes);
  }

  /// Calls visit(j, e, token) for each of the thread's tokens.
  template <class Thread, class Visit>
  static __device__ __forceinline__ void for_each_token(const Thread& thread, Visit visit) {
#pragma unroll
    for (int j = 0; j < kTokenBlocks; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) visit(j, e, thread.token(j, e));
    }
  }
  /// Calls visit(i, index of the result, whether the patch exists) for each of the thread's patches of a token.
  template <class Thread, class Visit>
  __device__ __forceinline__ void for_each_patch(const Thread& thread, int j, int e, Visit visit) const {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) visit(i, 4 * j + 2 * h + e, thread.patch(i, h) < common.patches);
    }
  }

  /// Adds up a value of the eight lanes that have the same token.
  static __device__ __forceinline__ float token_sum(float value) {
    for (int distance = 4; distance <= 16; distance *= 2) value += __shfl_xor_sync(kAllLanes, value, distance);
    return value;
  }

  /// Writes values of the patches and tokens to blocks(), as bfloat16.
  template <class Thread>
  __device__ __forceinline__ void put_blocks(const Thread& thread, const float (&values)[kTiles][kSums]) const {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      if (thread.warp_patch(i) >= common.plan.patch_rows) continue;
      unsigned char* const row = blocks() + thread.warp_patch(i) / 8 * kBlockRowBytes + thread.lane() * 4;
#pragma unroll
      for (int j = 0; j < kTokenBlocks; ++j) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          word_at<std::uint32_t>(row + h * kBlockRowBytes + j * 128) =
              bfloat16_pair(values[i][4 * j + 2 * h], values[i][4 * j + 2 * h + 1]);
        }
      }
    }
  }

  /// Starts adding the product of a slice's columns [64, patches] and blocks() [patches, tokens].
  __device__ __forceinline__ void multiply_by_blocks(float (&sums)[kSums], const unsigned char* image) const {
    const Operand columns = tile_operand(image), weights = block_operand(blocks(), 128, kBlockRowBytes);
    const int steps = common.plan.patch_rows / 16;
#pragma unroll 1
    for (int k = 0; k < steps; ++k) {
      fence_products(sums);
      multiply<Depth::kAcrossRows, Depth::kAcrossRows>(sums, columns.after(k * kAcrossRowsStep), weights.after(k * 2 * kBlockRowBytes),
                                                       true);
      commit_products();  // here and not after the loop, where the compiler would add an empty product to commit
    }
  }
  /// Writes results [64 columns, tokens] to a tile of tokens, with zeros for padding.
  template <class Thread>
  static __device__ __forceinline__ void put_token_tile(const Thread& thread, const float (&sums)[kSums], unsigned char* to,
                                                        const TileMask& mask) {
    const int column = thread.warp_row() + thread.lane() / 8 % 2 * 8, token = thread.lane() / 16 * 8 + thread.lane() % 8;
#pragma unroll
    for (int j = 0; j < kTokenBlocks; j += 2) {
      std::uint32_t words[4];
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        const int block = j + part / 2, first = 4 * block + part % 2 * 2;
        words[part] = 0;
        if (block < kTokenBlocks) {
          words[part] = bfloat16_pair(mask.real(thread.token(block, 0)) ? sums[first] : 0.0f,
                                      mask.real(thread.token(block, 1)) ? sums[first + 1] : 0.0f);
        }
      }
      store_matrices_transposed(words, to + tile_offset(8 * j + token, column));
    }
  }
};

/// Runs the role of the calling thread: load() in the loader's warp, store() in the storer, and consume<0>() or consume<1>() in a consumer.
template <class Block>
__device__ __forceinline__ void run_roles(const Block& block) {
  block.start_barriers();
  if (threadIdx.x < kWarpgroup) {
    release_registers<40>();
    if (threadIdx.x < 32) {
      block.load();
    } else if (threadIdx.x == 32) {
      block.store();
    }
  } else {
    claim_registers<232>();
    if (threadIdx.x < 2 * kWarpgroup) {
      block.template consume<0>();
    } else {
      block.template consume<1>();
    }
  }
}

template <class Block>
__global__ void __launch_bounds__(kHopperThreads, 1)
    sparsify_group_hopper_kernel(const __grid_constant__ typename Block::Arguments arguments) {
  TESSERA_ALIGNED_SHARED(shared);
  run_roles(Block(arguments, shared));
}

/// Launches the kernel with the Block that has the plan's tokens.
template <template <int kColumns> class Block, class Arguments>
Status start(const char* operation, const Arguments& arguments, void* stream) {
  const auto kernel =
      arguments.plan.configuration->tokens == 56 ? sparsify_group_hopper_kernel<Block<56>> : sparsify_group_hopper_kernel<Block<80>>;
  return launch(operation, kernel, dim3(persistent_blocks(arguments.batch)), kHopperThreads, arguments.plan.bytes, stream, arguments);
}

}  // namespace
}  // namespace tessera::kernels
