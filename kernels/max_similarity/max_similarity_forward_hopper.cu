// The forward pass on Hopper GPUs, from the packed rows of max_similarity_forward.cu. A block processes one image and some of the texts,
// one or two of them at a time. It has three warpgroups:
//   - A thread (the loader) copies all slices of 64 columns of the image's patches to shared memory, where they stay, and then slices of
//     the texts' tokens into a ring of buffers.
//   - Two warpgroups (the consumers) multiply. Patches are the rows of the results, 64 for each of a consumer's two tiles, and tokens are
//     the columns. Each warp finds the best token of its patches, and the best of its patches for each token, which go to one of two slots.
//   - One warp for each text (the merger) compares the best patches of the warps and writes the similarities.
// While a consumer searches maxima, the other one still multiplies, or multiplies the next texts.
// Packed rows past a count are not initialized. They only affect results in their own row or column, which are ignored.
#include <algorithm>

#include "kernels/device/current_device.h"
#include "kernels/device/hopper.h"
#include "kernels/max_similarity/forward.h"

namespace tessera::kernels {
namespace {

constexpr int kConsumers = 2, kConsumerThreads = kConsumers * kWarpgroup, kThreads = kWarpgroup + kConsumerThreads;
constexpr int kTiles = 2;                          // tiles of 64 patches of a consumer
constexpr int kFoldWarps = kConsumerThreads / 32;  // warps that find maxima
constexpr int kSlots = 2;

struct HopperArguments {
  ForwardArguments common;
  TileMap patches, tokens;
  MaxSimilarityHopperPlan plan;
  int row_slices, products;    // slices of a part of a row, and products of parts (see PackedRows::parts)
  int steps, steps_per_block;  // a step processes the texts that a block processes at once
};

template <int kTokens, int kTexts>
struct HopperBlock {
  static constexpr int kColumns = kTokens * kTexts, kSums = kColumns / 2, kTokenBlocks = kTokens / 8;
  static constexpr int kStageBytes = kColumns * kTileRowBytes, kSlotBytes = kFoldWarps * (kColumns * 8 + kTexts * 4);
  using Sums = float[kTiles][kSums];

  const HopperArguments& arguments;
  unsigned char* const shared;
  const int image, first_step, end_step;  // of the block

  __device__ __forceinline__ HopperBlock(const HopperArguments& given, unsigned char* memory)
      : arguments(given),
        shared(memory),
        image(static_cast<int>(blockIdx.x) % static_cast<int>(given.common.images)),
        first_step(static_cast<int>(blockIdx.x) / static_cast<int>(given.common.images) * given.steps_per_block),
        end_step(first_step + given.steps_per_block < given.steps ? first_step + given.steps_per_block : given.steps) {}

  __device__ __forceinline__ const MaxSimilarityHopperPlan& plan() const { return arguments.plan; }
  __device__ __forceinline__ const PackedRows& patches() const { return arguments.common.patches; }
  __device__ __forceinline__ const PackedRows& tokens() const { return arguments.common.tokens; }
  __device__ __forceinline__ std::int64_t first_patch() const { return static_cast<std::int64_t>(image) * patches().size; }
  __device__ __forceinline__ std::int64_t pair(std::int64_t text) const { return image * arguments.common.texts + text; }
  __device__ __forceinline__ int token_count(std::int64_t text) const { return text < arguments.common.texts ? tokens().counts[text] : 0; }

  __device__ __forceinline__ unsigned char* image_slice(int index) const { return shared + index * plan().patch_rows * kTileRowBytes; }
  __device__ __forceinline__ unsigned char* buffer(const RingPlace& place) const {
    return shared + plan().ring + place.buffer * kStageBytes;
  }
  /// The best row of each of the columns, for each warp.
  __device__ __forceinline__ Best* slot_bests(const RingPlace& slot, int warp) const {
    return reinterpret_cast<Best*>(shared + plan().slots + slot.buffer * kSlotBytes) + warp * kColumns;
  }
  /// The sum of the maxima of the patches, for each warp.
  __device__ __forceinline__ float* slot_sums(const RingPlace& slot, int text) const {
    return reinterpret_cast<float*>(slot_bests(slot, kFoldWarps)) + text * kFoldWarps;
  }
  __device__ __forceinline__ Barrier* barriers() const { return reinterpret_cast<Barrier*>(shared + plan().barriers); }
  // The copies into a buffer are complete; and the loader may fill it again.
  __device__ __forceinline__ Barrier& full(const RingPlace& place) const { return barriers()[place.buffer]; }
  __device__ __forceinline__ Barrier& free(const RingPlace& place) const { return barriers()[plan().stages + place.buffer]; }
  // A slot holds the results of all warps; and the mergers have read them.
  __device__ __forceinline__ Barrier& folded(const RingPlace& slot) const { return barriers()[2 * plan().stages + slot.buffer]; }
  __device__ __forceinline__ Barrier& merged(const RingPlace& slot) const { return barriers()[2 * plan().stages + kSlots + slot.buffer]; }
  __device__ __forceinline__ Barrier& image_full() const { return barriers()[2 * plan().stages + 2 * kSlots]; }

  __device__ __forceinline__ void load() const {
    const int image_slices = patches().parts * arguments.row_slices;
    image_full().expect(image_slices * plan().patch_rows * kTileRowBytes);
#pragma unroll 1
    for (int slice = 0; slice < image_slices; ++slice) {
      load_tile(image_slice(slice), arguments.patches, image_full(),
                {slice % arguments.row_slices * kTileColumns, 0, slice / arguments.row_slices, image}, Keep::kShort);
    }
    RingPlace place;
#pragma unroll 1
    for (int step = first_step; step < end_step; ++step) {
#pragma unroll 1
      for (int slice = 0; slice < arguments.products * arguments.row_slices; ++slice, place.next(plan().stages)) {
        free(place).wait(place.parity ^ 1u);
        full(place).expect(kStageBytes);
#pragma unroll
        for (int t = 0; t < kTexts; ++t) {
          load_tile(buffer(place) + t * kTokens * kTileRowBytes, arguments.tokens, full(place),
                    {slice % arguments.row_slices * kTileColumns, 0, slice / arguments.row_slices == 1 ? 1 : 0, step * kTexts + t},
                    Keep::kLong);
        }
      }
    }
  }

  /// Adds the products of all slices. If a row has two parts, these are upper with upper, upper with lower, and lower with upper.
  template <int kConsumer>
  __device__ __forceinline__ void multiply_slices(Sums& sums, RingPlace& place) const {
#pragma unroll 1
    for (int slice = 0; slice < arguments.products * arguments.row_slices; ++slice, place.next(plan().stages)) {
      const unsigned char* const patch_slice =
          image_slice(slice < 2 * arguments.row_slices ? slice % arguments.row_slices : slice - arguments.row_slices);
      full(place).wait(place.parity);
      fence_products(sums);
#pragma unroll
      for (int k = 0; k < kTileColumns / 16; ++k) {
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
          const int row = 64 * (kConsumer * kTiles + i);  // of a tile that does not exist: 0, and its results are ignored
          multiply<Depth::kAlongRows, Depth::kAlongRows>(
              sums[i], tile_operand(patch_slice + (row < plan().patch_rows ? row : 0) * kTileRowBytes).after(k * kAlongRowsStep),
              tile_operand(buffer(place)).after(k * kAlongRowsStep), true);
        }
      }
      commit_products();
      wait_for_products<0>(sums);
      free(place).arrive();
    }
  }

  /// Finds the maxima of the products with the text `kText` of the step. The thread's rows are first_row + 64 i + 8 h; of those that exist,
  /// the bit 2 i + h is set in `rows`. The four lanes that have the same four rows each write the best token of another one, which is the
  /// kept patch `patch` if it exists.
  template <int kText>
  __device__ __forceinline__ void fold(const Sums& sums, const RingPlace& slot, std::int64_t text, int count, int warp, int first_row,
                                       unsigned rows, int patch) const {
    const int lane = computed_here(static_cast<int>(threadIdx.x)) % 32;
    Best row_best[kTiles][2] = {{{-kInfinity, 0}, {-kInfinity, 0}}, {{-kInfinity, 0}, {-kInfinity, 0}}};
    float check = 0.0f;  // becomes NaN if a product is NaN or infinite
    Best* const column_best = slot_bests(slot, warp) + kText * kTokens;
#pragma unroll
    for (int j = 0; j < kTokenBlocks; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int column = 8 * j + lane % 4 * 2 + e;
        const bool exists = column < count;
        Best top{-kInfinity, -1};
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const float value = sums[i][4 * (kText * kTokenBlocks + j) + 2 * h + e];
            const bool is_row = (rows >> (2 * i + h) & 1u) != 0;
            check = exists & is_row ? fmaf(value, 0.0f, check) : check;
            if (exists & (value > row_best[i][h].value)) row_best[i][h] = {value, column};
            if (is_row & (value > top.value)) top = {value, 64 * i + 8 * h};
          }
        }
        top.index = top.index < 0 ? 0 : first_row + top.index;
        top = best_of_lanes(top, 4, 32);
        if (lane < 4 && exists) column_best[column] = top;
      }
    }
    Best mine{0.0f, 0};
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const Best best = best_of_lanes(row_best[i][h], 1, 4);
        if (lane % 4 == 2 * i + h) mine = best;
      }
    }
    if (count > 0 && (rows >> (lane % 4) & 1u) != 0) {
      check += mine.value;
      const std::int64_t place = pair(text);
      arguments.common.best_token[place * patches().size + patch] = tokens().kept[text * tokens().size + mine.index];
    }
    check = warp_sum(check);
    if (lane == 0) slot_sums(slot, kText)[warp] = check;
  }

  template <int kConsumer>
  __device__ __forceinline__ void consume() const {
    const int thread = static_cast<int>(threadIdx.x) % kWarpgroup, lane = thread % 32, warp = 4 * kConsumer + thread / 32;
    const int patch_count = patches().counts[image], first_row = 64 * kTiles * kConsumer + sum_row(thread, 0);
    unsigned rows = 0;
    for (int i = 0; i < 4; ++i) rows |= first_row + 64 * (i / 2) + 8 * (i % 2) < patch_count ? 1u << i : 0u;
    const int own_row = first_row + 64 * (lane % 4 / 2) + 8 * (lane % 2);
    const int patch = own_row < patch_count ? patches().kept[first_patch() + own_row] : 0;
    RingPlace place, slot;
    image_full().wait(0);
#pragma unroll 1
    for (int step = first_step; step < end_step; ++step) {
      const std::int64_t text = static_cast<std::int64_t>(step) * kTexts;
      const int first_count = token_count(text), second_count = kTexts > 1 ? token_count(text + 1) : 0;
      Sums sums = {};
      multiply_slices<kConsumer>(sums, place);
      merged(slot).wait(slot.parity ^ 1u);
      fold<0>(sums, slot, text, first_count, warp, first_row, rows, patch);
      if constexpr (kTexts > 1) fold<1>(sums, slot, text + 1, second_count, warp, first_row, rows, patch);
      folded(slot).arrive();
      slot.next(kSlots);
    }
  }

  /// Writes the similarities of the image with a text, the best patches, and zeros for what is not kept.
  __device__ __forceinline__ void merge(const RingPlace& slot, int t, std::int64_t text, int patch_count) const {
    const ForwardArguments& common = arguments.common;
    const int lane = static_cast<int>(threadIdx.x % 32), count = token_count(text);
    const std::int64_t place = pair(text);
    const bool pairs = patch_count > 0 && count > 0;
    float i2t = 0.0f, t2i = 0.0f;
    if (pairs) {
      for (int token = lane; token < count; token += 32) {
        Best best = slot_bests(slot, 0)[t * kTokens + token];
        for (int warp = 1; warp < kFoldWarps; ++warp) best = better(best, slot_bests(slot, warp)[t * kTokens + token]);
        t2i += best.value;
        common.best_patch[place * tokens().size + tokens().kept[text * tokens().size + token]] =
            patches().kept[first_patch() + best.index];
      }
      for (int warp = 0; warp < kFoldWarps; ++warp) i2t += slot_sums(slot, t)[warp];
      i2t /= static_cast<float>(patch_count);
      t2i = warp_sum(t2i) / static_cast<float>(count) + (i2t - i2t);  // i2t - i2t makes t2i NaN if i2t is NaN; otherwise it is 0
    }
    if (lane == 0) {
      common.i2t[place] = i2t;
      common.t2i[place] = t2i;
    }
    if (!pairs || patch_count < patches().size) {
      for (int patch = lane; patch < patches().size; patch += 32) {
        if (!pairs || common.patch_keep[first_patch() + patch] == 0) common.best_token[place * patches().size + patch] = 0;
      }
    }
    if (!pairs || count < tokens().size) {
      for (int token = lane; token < tokens().size; token += 32) {
        if (!pairs || common.token_keep[text * tokens().size + token] == 0) common.best_patch[place * tokens().size + token] = 0;
      }
    }
  }
  __device__ __forceinline__ void merge_texts(int t) const {
    const int patch_count = patches().counts[image];
    RingPlace slot;
#pragma unroll 1
    for (int step = first_step; step < end_step; ++step, slot.next(kSlots)) {
      const std::int64_t text = static_cast<std::int64_t>(step) * kTexts + t;
      folded(slot).wait(slot.parity);
      if (text < arguments.common.texts) merge(slot, t, text, patch_count);
      merged(slot).arrive();
    }
  }

  __device__ __forceinline__ void run() const {
    if (threadIdx.x == 0) {
      for (RingPlace place; place.buffer < plan().stages; ++place.buffer) {
        full(place).start(1);
        free(place).start(kConsumerThreads);
      }
      for (RingPlace slot; slot.buffer < kSlots; ++slot.buffer) {
        folded(slot).start(kConsumerThreads);
        merged(slot).start(32 * kTexts);
      }
      image_full().start(1);
      fence_barriers();
    }
    __syncthreads();
    if (threadIdx.x < kWarpgroup) {
      release_registers<40>();
      if (threadIdx.x == 0) {
        load();
      } else if (threadIdx.x >= 32 && threadIdx.x < 32 * (kTexts + 1)) {
        merge_texts(static_cast<int>(threadIdx.x / 32) - 1);
      }
    } else {
      claim_registers<232>();
      if (threadIdx.x < 2 * kWarpgroup) {
        consume<0>();
      } else {
        consume<1>();
      }
    }
  }
};

template <int kTokens, int kTexts>
__global__ void __launch_bounds__(kThreads, 1) max_similarity_hopper_kernel(const __grid_constant__ HopperArguments arguments) {
  TESSERA_ALIGNED_SHARED(shared);
  HopperBlock<kTokens, kTexts>(arguments, shared).run();
}

template <int kTokens, int kTexts>
Status start(HopperArguments& arguments, void* stream) {
  const ForwardArguments& common = arguments.common;
  const TileSource tokens = packed_source(common.tokens, common.texts);
  if (Status status = make_tile_map(arguments.tokens, "max_similarity", tokens, kTokens); !status.ok()) return status;
  // About four blocks per multiprocessor, but at least eight steps per block, because each block copies the image's patches.
  constexpr std::int64_t kLeastSteps = 8;
  const std::int64_t blocks = 4 * static_cast<std::int64_t>(persistent_blocks(kMostBlocks)), steps = (common.texts + kTexts - 1) / kTexts;
  const std::int64_t wanted = (blocks + common.images - 1) / common.images, most = std::max<std::int64_t>(1, steps / kLeastSteps);
  const std::int64_t parts = std::min(wanted, most);
  arguments.steps = static_cast<int>(steps);
  arguments.steps_per_block = static_cast<int>((steps + parts - 1) / parts);
  const std::int64_t grid = common.images * ((steps + arguments.steps_per_block - 1) / arguments.steps_per_block);
  return launch("max_similarity forward", max_similarity_hopper_kernel<kTokens, kTexts>, dim3(static_cast<unsigned>(grid)), kThreads,
                arguments.plan.bytes, stream, arguments);
}

}  // namespace

namespace TESSERA_DEVICE_NAMESPACE {

Status max_similarity_forward_hopper(const MaxSimilarityForward& given, const MaxSimilarityHopperPlan& plan, void* stream) {
  HopperArguments arguments;
  arguments.common = make_arguments(given);
  arguments.plan = plan;
  const PackedRows& patches = arguments.common.patches;
  if (Status status = make_tile_map(arguments.patches, "max_similarity", packed_source(patches, arguments.common.images), plan.patch_rows);
      !status.ok()) {
    return status;
  }
  arguments.row_slices = (patches.part_width + kTileColumns - 1) / kTileColumns;
  arguments.products = patches.parts == 1 ? 1 : 3;
  return plan.configuration->tokens == 56 ? start<56, 2>(arguments, stream) : start<80, 1>(arguments, stream);
}

}  // namespace TESSERA_DEVICE_NAMESPACE
}  // namespace tessera::kernels
