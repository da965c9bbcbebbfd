// Forward on Hopper GPUs (hopper_blocks.h). For each pair:
//   1. Compute S^T = V T^T, from slices of V and T.
//   2. Find the minimum and the maximum of each token, then the weights and their sum. The consumers' warps exchange these numbers through
//      the last slice's buffer, in the order of the warps. The normalized weights go to shared memory.
//   3. Compute grouped^T = V^T A^T from slices of V. The last consumer does this; the results go to the slice's buffer, from where the
//      storer copies them.
#include "kernels/sparsify_group/hopper_blocks.h"

namespace tessera::kernels {
namespace {

struct HopperForwardArguments : HopperArguments {
  TileMap grouped;
  float* row_statistics;
  float* all_weights;
};

template <int kColumns>
struct HopperForwardBlock : HopperBlock<kColumns> {
  using Base = HopperBlock<kColumns>;
  using Arguments = HopperForwardArguments;
  using Base::common, Base::kSums;
  using Similarities = float[kTiles][kSums];
  const HopperForwardArguments& arguments;

  __device__ __forceinline__ HopperForwardBlock(const HopperForwardArguments& given, unsigned char* memory)
      : Base{given, memory}, arguments(given) {}

  __device__ __forceinline__ void load() const {
    Base::run_loader([&](const RingPlace& place, int pair, int slice, const TileMask& mask, int pass) {
      const Keep keep = pass == 0 ? Keep::kLong : Keep::kShort;
      Base::full(place).expect((common.plan.patch_rows + (pass == 0 ? common.plan.token_rows : 0)) * kTileRowBytes);
      Base::load_image(place, pair, slice, keep);
      if (pass == 0) Base::load_tokens(Base::text_tile(Base::buffer(place)), common.text, place, pair, slice, mask, Keep::kShort);
    });
  }
  __device__ __forceinline__ void store() const {
    Base::run_storer([&](const RingPlace& place, int pair, int slice) {
      store_tile(arguments.grouped, Base::text_tile(Base::buffer(place)), {slice * kTileColumns, 0, 0, pair});
    });
  }

  /// Adds the similarities to `sums`. Leaves `place` at the last slice, whose buffer is not released.
  template <int kConsumer>
  __device__ __forceinline__ void compute_similarities(Similarities& sums, RingPlace& place) const {
#pragma unroll 1
    for (int slice = 0;; ++slice) {
      unsigned char* const from = Base::buffer(place);
      Base::full(place).wait(place.parity);
      fence_products(sums);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
          multiply<Depth::kAlongRows, Depth::kAlongRows>(sums[i],
                                                         Base::template image_operand<kConsumer>(from, i).after(k * kAlongRowsStep),
                                                         tile_operand(Base::text_tile(from)).after(k * kAlongRowsStep), true);
        }
      }
      commit_products();
      wait_for_products<0>(sums);
      if (slice + 1 == common.slices) return;
      Base::done(place).arrive();
      place.next(common.plan.stages);
    }
  }

  /// Finds the minimum and the maximum of each token. `partial` has room for two floats for each token and warp.
  template <class Thread>
  __device__ __forceinline__ void find_range(const Thread& thread, const Similarities& sums, const TileMask& mask, float2* partial) const {
    Base::for_each_token(thread, [&](int j, int e, int token) {
      float lowest = kInfinity, highest = -kInfinity, check = 0.0f;  // `check` becomes NaN if a similarity is NaN or infinite
      Base::for_each_patch(thread, j, e, [&](int i, int index, bool exists) {
        const float value = sums[i][index];
        lowest = exists ? fminf(lowest, value) : lowest;
        highest = exists ? fmaxf(highest, value) : highest;
        check += exists ? value * 0.0f : 0.0f;
      });
      for (int distance = 4; distance <= 16; distance *= 2) {
        lowest = fminf(lowest, __shfl_xor_sync(kAllLanes, lowest, distance));
        highest = fmaxf(highest, __shfl_xor_sync(kAllLanes, highest, distance));
      }
      check = Base::token_sum(check);
      if (thread.lane() < 4) partial[token * kPartialSums + thread.warp_of_all()] = {lowest + check, highest + check};
    });
    Base::wait_for_consumers();
    const int token = thread.of_all();
    if (token < common.tokens && mask.real(token)) {
      float lowest = kInfinity, highest = -kInfinity;  // NaN once a warp's number is NaN
      for (int warp = 0; warp < kPartialSums; ++warp) {
        const float2 range = partial[token * kPartialSums + warp];
        lowest = range.x < lowest || range.x != range.x ? range.x : lowest;
        highest = range.y > highest || range.y != range.y ? range.y : highest;
      }
      Base::numbers()[token].lowest = lowest;
      Base::numbers()[token].highest = highest;
      Base::numbers()[token].cut = common.softmax ? 0.0f : kept_from(highest - lowest, common.threshold);
    }
    Base::wait_for_consumers();
  }

  /// Replaces the similarities by weights that are not yet normalized, and finds their sums. `partial` has room for a float for each token
  /// and warp.
  template <bool kSoftmax, class Thread>
  __device__ __forceinline__ void weigh(const Thread& thread, Similarities& sums, int pair, const TileMask& mask, float* partial) const {
    Base::for_each_token(thread, [&](int j, int e, int token) {
      const float lowest = Base::numbers()[token].lowest, highest = Base::numbers()[token].highest, cut = Base::numbers()[token].cut;
      float sum = 0.0f;
      Base::for_each_patch(thread, j, e, [&](int i, int index, bool exists) {
        float& value = sums[i][index];
        const float above = value - lowest;
        const float kept = kSoftmax ? expf((value - highest) * common.inverse_temperature) : above < cut ? 0.0f : above;
        value = exists ? kept : 0.0f;
        sum += value;
      });
      sum = Base::token_sum(sum);
      if (thread.lane() < 4) partial[token * kPartialSums + thread.warp_of_all()] = sum;
    });
    Base::wait_for_consumers();
    const int token = thread.of_all();
    if (token < common.tokens) {
      float sum = 0.0f;
      for (int warp = 0; warp < kPartialSums; ++warp) sum += partial[token * kPartialSums + warp];
      RowNumbers& numbers = Base::numbers()[token];
      numbers.scale = 1.0f / sum;
      if (arguments.row_statistics != nullptr) {
        const bool real = mask.real(token);
        float* const to = arguments.row_statistics + (static_cast<std::int64_t>(pair) * common.tokens + token) * kRowStatistics;
        to[0] = real ? numbers.lowest : 0.0f;
        to[1] = real ? numbers.highest : 0.0f;
        to[2] = real ? sum : 0.0f;
      }
    }
    Base::wait_for_consumers();
  }

  /// Normalizes the weights. They are 0 for padding.
  template <class Thread>
  __device__ __forceinline__ void normalize(const Thread& thread, Similarities& sums, int pair, const TileMask& mask) const {
    const float uniform = 1.0f / static_cast<float>(common.patches);
    Base::for_each_token(thread, [&](int j, int e, int token) {
      const RowNumbers& numbers = Base::numbers()[token];
      const bool real = mask.real(token), flat = !common.softmax && is_flat(numbers.lowest, numbers.highest);
      const float scale = numbers.scale;
      Base::for_each_patch(thread, j, e, [&](int i, int index, bool exists) {
        float& value = sums[i][index];
        value = real && exists ? (flat ? uniform : value * scale) : 0.0f;
        if (arguments.all_weights != nullptr && exists && token < common.tokens) {
          arguments
              .all_weights[(static_cast<std::int64_t>(pair) * common.tokens + token) * common.patches + thread.patch(i, index / 2 % 2)] =
              value;
        }
      });
    });
  }

  /// Computes a slice of the grouped patches.
  template <int kConsumer>
  __device__ __forceinline__ void group_patches(RingPlace& place, const TileMask& mask) const {
    Base::full(place).wait(place.parity);
    if constexpr (kConsumer == kConsumers - 1) {
      float sums[kSums] = {};
      Base::multiply_by_blocks(sums, Base::buffer(place));
      wait_for_products<0>(sums);
      Base::put_token_tile(ConsumerThread<kConsumer>::here(), sums, Base::text_tile(Base::buffer(place)), mask);
      fence_for_copies();
    }
    Base::done(place).arrive();
    place.next(common.plan.stages);
  }

  template <int kConsumer>
  __device__ __forceinline__ void consume() const {
    RingPlace place;
#pragma unroll 1
    for (int pair = static_cast<int>(blockIdx.x); pair < common.batch; pair += static_cast<int>(gridDim.x)) {
      const TileMask mask = Base::mask_of(pair);
      Similarities sums = {};
      compute_similarities<kConsumer>(sums, place);
      Base::wait_for_consumers();  // until nobody reads the last buffer, nor the weights of the previous pair
      const auto thread = ConsumerThread<kConsumer>::here();
      float* const partial = reinterpret_cast<float*>(Base::buffer(place));
      find_range(thread, sums, mask, reinterpret_cast<float2*>(partial));
      if (common.softmax) {
        weigh<true>(thread, sums, pair, mask, partial);
      } else {
        weigh<false>(thread, sums, pair, mask, partial);
      }
      normalize(thread, sums, pair, mask);
      Base::put_blocks(thread, sums);
      fence_for_copies();
      Base::wait_for_consumers();
      Base::done(place).arrive();
      place.next(common.plan.stages);
#pragma unroll 1
      for (int slice = 0; slice < common.slices; ++slice) group_patches<kConsumer>(place, mask);
    }
  }
};

}  // namespace

namespace TESSERA_DEVICE_NAMESPACE {

Status sparsify_group_forward_hopper(const SparsifyGroupForward& given, const SparsifyGroupHopperPlan& plan, void* stream) {
  const SparsifyGroupProblem& problem = given.problem;
  HopperForwardArguments arguments;
  if (Status status = make_arguments(arguments, problem, plan, given.text_tokens, given.image_tokens, given.text_mask); !status.ok()) {
    return status;
  }
  const TileSource grouped = tile_source(given.grouped, problem.batch, problem.tokens, problem.width);
  if (Status status = make_tile_map(arguments.grouped, "sparsify_group", grouped, plan.token_rows); !status.ok()) return status;
  arguments.row_statistics = given.row_statistics;
  arguments.all_weights = given.weights;
  return start<HopperForwardBlock>("sparsify_group forward", arguments, stream);
}

}  // namespace TESSERA_DEVICE_NAMESPACE
}  // namespace tessera::kernels
