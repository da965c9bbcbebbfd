// Backward on Hopper GPUs (hopper_blocks.h). For each pair:
//   1. Compute S^T = V T^T again, and dA^T = V dC^T, from slices of V, T and dC.
//   2. Compute the weights A^T from S^T and the statistics of the forward pass, then the sums for each token that the gradient dS of the
//      similarities needs. The consumers' warps exchange these sums through the last slice's buffer, in the order of the warps. A^T and
//      dS^T stay in registers, as operands of products; dS^T goes to shared memory, too.
//   3. For the same slices again: compute dV = A^T dC + dS^T T (each consumer for its patches) and dT^T = V^T dS^T (the last consumer). The
//      results go to the slice's buffer, from where the storer copies them.
// A pair's sums stay within a block and have a fixed order, so results are the same in every run.
#include "kernels/sparsify_group/hopper_blocks.h"

namespace tessera::kernels {
namespace {

struct HopperBackwardArguments : HopperArguments {
  TokenMaps grad_grouped;
  TileMap grad_text, grad_image;
  const float* row_statistics;
  bool writes_text, writes_image;
};

template <int kColumns>
struct HopperBackwardBlock : HopperBlock<kColumns> {
  using Base = HopperBlock<kColumns>;
  using Arguments = HopperBackwardArguments;
  using Base::common, Base::kSums;
  using Results = float[kTiles][kSums];
  static constexpr float kTie = 1024.0f;               // more than there are patches: a number n + kTie m holds two counts
  static constexpr int kSteps = (kColumns + 15) / 16;  // of products over tokens
  using Operands = std::uint32_t[kTiles][kSteps][4];
  const HopperBackwardArguments& arguments;

  __device__ __forceinline__ HopperBackwardBlock(const HopperBackwardArguments& given, unsigned char* memory)
      : Base{given, memory}, arguments(given) {}

  __device__ __forceinline__ void load() const {
    Base::run_loader([&](const RingPlace& place, int pair, int slice, const TileMask& mask, int pass) {
      const Keep keep = pass == 0 ? Keep::kLong : Keep::kShort;
      Base::full(place).expect((common.plan.patch_rows + 2 * common.plan.token_rows) * kTileRowBytes);
      Base::load_image(place, pair, slice, keep);
      Base::load_tokens(Base::text_tile(Base::buffer(place)), common.text, place, pair, slice, mask, keep);
      Base::load_tokens(Base::grad_tile(Base::buffer(place)), arguments.grad_grouped, place, pair, slice, mask, keep);
    });
  }
  __device__ __forceinline__ void store() const {
    Base::run_storer([&](const RingPlace& place, int pair, int slice) {
      unsigned char* const from = Base::buffer(place);
      for (int patch = 0; arguments.writes_image && patch < common.patches; patch += 64) {
        store_tile(arguments.grad_image, from + patch * kTileRowBytes, {slice * kTileColumns, patch, 0, pair});
      }
      if (arguments.writes_text) store_tile(arguments.grad_text, Base::grad_tile(from), {slice * kTileColumns, 0, 0, pair});
    });
  }

  /// Reads the statistics of the forward pass.
  template <class Thread>
  __device__ __forceinline__ void read_statistics(const Thread& thread, int pair, const TileMask& mask) const {
    const int token = thread.of_all();
    if (token >= common.tokens || !mask.real(token)) return;
    const float* const from = arguments.row_statistics + (static_cast<std::int64_t>(pair) * common.tokens + token) * kRowStatistics;
    RowNumbers& numbers = Base::numbers()[token];
    numbers.lowest = from[0];
    numbers.highest = from[1];
    numbers.cut = common.softmax ? 0.0f : kept_from(from[1] - from[0], common.threshold);
    numbers.scale = 1.0f / from[2];
  }

  /// Adds the similarities and the gradients of the weights to the arguments. Leaves `place` at the last slice, whose buffer is not
  /// released.
  template <int kConsumer>
  __device__ __forceinline__ void compute_similarities(Results& similarities, Results& gradients, RingPlace& place) const {
#pragma unroll 1
    for (int slice = 0;; ++slice) {
      unsigned char* const from = Base::buffer(place);
      const Operand text = tile_operand(Base::text_tile(from)), grad = tile_operand(Base::grad_tile(from));
      Base::full(place).wait(place.parity);
      fence_products(similarities, gradients);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
          const Operand image = Base::template image_operand<kConsumer>(from, i).after(k * kAlongRowsStep);
          multiply<Depth::kAlongRows, Depth::kAlongRows>(similarities[i], image, text.after(k * kAlongRowsStep), true);
          multiply<Depth::kAlongRows, Depth::kAlongRows>(gradients[i], image, grad.after(k * kAlongRowsStep), true);
        }
      }
      commit_products();
      wait_for_products<0>(similarities, gradients);
      if (slice + 1 == common.slices) return;
      Base::done(place).arrive();
      place.next(common.plan.stages);
    }
  }

  /// Replaces the similarities by the weights, and finds the mean of each token's gradients, and the gradient of the minimum. `partial` has
  /// room for four floats for each token and warp.
  template <bool kSoftmax, class Thread>
  __device__ __forceinline__ void weigh(const Thread& thread, Results& similarities, const Results& gradients, const TileMask& mask,
                                        float4* partial) const {
    const float uniform = 1.0f / static_cast<float>(common.patches);
    Base::for_each_token(thread, [&](int j, int e, int token) {
      const RowNumbers& numbers = Base::numbers()[token];
      const float lowest = numbers.lowest, highest = numbers.highest, cut = numbers.cut, scale = numbers.scale;
      const bool real = mask.real(token), flat = !kSoftmax && is_flat(lowest, highest);
      float mean = 0.0f, kept_count = 0.0f, kept_sum = 0.0f, ties = 0.0f;
      Base::for_each_patch(thread, j, e, [&](int i, int index, bool exists) {
        float& value = similarities[i][index];
        const bool counts = real && exists;
        const float above = value - lowest, gradient = gradients[i][index];
        if (kSoftmax) {
          value = counts ? expf((value - highest) * common.inverse_temperature) * scale : 0.0f;
        } else {
          // A weight of -0 marks a patch at the minimum.
          const float weight = flat ? uniform : above <= 0.0f ? -0.0f : above < cut ? 0.0f : above * scale;
          value = counts ? weight : 0.0f;
          const bool kept = counts && !(above < cut);
          kept_count += kept ? 1.0f : 0.0f;
          kept_sum += kept ? gradient : 0.0f;
          ties += counts && above <= 0.0f ? 1.0f : 0.0f;
        }
        mean += counts ? value * gradient : 0.0f;
      });
      mean = Base::token_sum(mean);
      kept_sum = kSoftmax ? 0.0f : Base::token_sum(kept_sum);
      const float counts = kSoftmax ? 0.0f : Base::token_sum(kept_count + kTie * ties);
      if (thread.lane() < 4) partial[token * kPartialSums + thread.warp_of_all()] = {mean, kept_sum, counts, 0.0f};
    });
    Base::wait_for_consumers();
    const int token = thread.of_all();
    if (token < common.tokens && mask.real(token)) {
      float mean = 0.0f, kept_sum = 0.0f, counts = 0.0f;
      for (int warp = 0; warp < kPartialSums; ++warp) {
        const float4 share = partial[token * kPartialSums + warp];
        mean += share.x;
        kept_sum += share.y;
        counts += share.z;
      }
      const float ties = floorf(counts / kTie), kept_count = counts - kTie * ties;
      Base::numbers()[token].mean = mean;
      Base::numbers()[token].at_lowest = (mean * kept_count - kept_sum) * Base::numbers()[token].scale / fmaxf(ties, 1.0f);
    }
    Base::wait_for_consumers();
  }

  /// Replaces the weights' gradients by those of the similarities.
  template <bool kSoftmax, class Thread>
  __device__ __forceinline__ void differentiate(const Thread& thread, const Results& weights, Results& gradients,
                                                const TileMask& mask) const {
    Base::for_each_token(thread, [&](int j, int e, int token) {
      const RowNumbers& numbers = Base::numbers()[token];
      const float scale = numbers.scale, mean = numbers.mean, at_lowest = numbers.at_lowest;
      const bool keeps_lowest = numbers.cut <= 0.0f, zero = !mask.real(token) || (!kSoftmax && is_flat(numbers.lowest, numbers.highest));
      Base::for_each_patch(thread, j, e, [&](int i, int index, bool exists) {
        const float weight = weights[i][index], above_mean = gradients[i][index] - mean;
        float gradient;
        if (kSoftmax) {
          gradient = weight * above_mean * common.inverse_temperature;
        } else {
          const bool lowest = float_to_bits(weight) == 0x80000000u;
          gradient = (lowest ? keeps_lowest : weight != 0.0f) ? above_mean * scale : 0.0f;
          gradient = lowest ? gradient + at_lowest : gradient;
        }
        gradients[i][index] = zero || !exists ? 0.0f : gradient;
      });
    });
  }

  /// Rounds results to bfloat16, as operands of products over tokens.
  static __device__ __forceinline__ void round(Operands& words, const Results& values) {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int k = 0; k < kSteps; ++k) {
#pragma unroll
        for (int part = 0; part < 4; ++part) {
          const int first = 8 * k + 2 * part;
          words[i][k][part] = first < kSums ? bfloat16_pair(values[i][first], values[i][first + 1]) : 0u;
        }
      }
    }
  }

  /// Writes the warp's rows of a tile of dV to the buffer, from row `patch` on.
  static __device__ __forceinline__ void put_patch_rows(int lane, const float (&sums)[32], unsigned char* to, int patch) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {  // 16 columns
      std::uint32_t words[4];
#pragma unroll
      for (int part = 0; part < 4; ++part) words[part] = bfloat16_pair(sums[8 * j + 2 * part], sums[8 * j + 2 * part + 1]);
      store_matrices(words, to + tile_offset(patch + lane / 8 % 2 * 8 + lane % 8, 16 * j + lane / 16 * 8));
    }
  }

  /// Computes a slice of dV, and the last consumer also computes a slice of dT.
  template <int kConsumer>
  __device__ __forceinline__ void multiply_slice(const Operands& weights, const Operands& gradients, RingPlace& place,
                                                 const TileMask& mask) const {
    constexpr bool kText = kConsumer == kConsumers - 1;
    unsigned char* const from = Base::buffer(place);
    const Operand text = tile_operand(Base::text_tile(from)), grad = tile_operand(Base::grad_tile(from));
    float grad_image[kTiles][32], grad_text[kText ? kSums : 1] = {};
    Base::full(place).wait(place.parity);
    fence_products(grad_image);
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        multiply<Depth::kAcrossRows>(grad_image[i], weights[i][k], grad.after(k * kAcrossRowsStep), k > 0);
        multiply<Depth::kAcrossRows>(grad_image[i], gradients[i][k], text.after(k * kAcrossRowsStep), true);
      }
    }
    commit_products();
    if constexpr (kText) Base::multiply_by_blocks(grad_text, from);
    wait_for_products<0>(grad_image, grad_text);
    Base::wait_for_consumers();  // the results overwrite what the other consumer reads
    const auto thread = ConsumerThread<kConsumer>::here();
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      if (thread.warp_patch(i) < common.plan.patch_rows) put_patch_rows(thread.lane(), grad_image[i], from, thread.warp_patch(i));
    }
    if constexpr (kText) Base::put_token_tile(thread, grad_text, Base::grad_tile(from), mask);
    fence_for_copies();
    Base::done(place).arrive();
    place.next(common.plan.stages);
  }

  template <int kConsumer>
  __device__ __forceinline__ void consume() const {
    RingPlace place;
#pragma unroll 1
    for (int pair = static_cast<int>(blockIdx.x); pair < common.batch; pair += static_cast<int>(gridDim.x)) {
      const TileMask mask = Base::mask_of(pair);
      Operands weights, gradients;
      {
        Results similarities = {}, weight_gradients = {};
        read_statistics(ConsumerThread<kConsumer>::here(), pair, mask);
        compute_similarities<kConsumer>(similarities, weight_gradients, place);
        Base::wait_for_consumers();  // until nobody reads the last buffer, and the statistics are there
        using Thread = ConsumerThread<kConsumer>;
        float4* const partial = reinterpret_cast<float4*>(Base::buffer(place));
        if (common.softmax) {
          weigh<true>(Thread::here(), similarities, weight_gradients, mask, partial);
          differentiate<true>(Thread::here(), similarities, weight_gradients, mask);
        } else {
          weigh<false>(Thread::here(), similarities, weight_gradients, mask, partial);
          differentiate<false>(Thread::here(), similarities, weight_gradients, mask);
        }
        Base::put_blocks(Thread::here(), weight_gradients);
        round(weights, similarities);
        round(gradients, weight_gradients);
      }
      fence_for_copies();
      Base::wait_for_consumers();
      Base::done(place).arrive();
      place.next(common.plan.stages);
#pragma unroll 1
      for (int slice = 0; slice < common.slices; ++slice) multiply_slice<kConsumer>(weights, gradients, place, mask);
    }
  }
};

}  // namespace

namespace TESSERA_DEVICE_NAMESPACE {

Status sparsify_group_backward_hopper(const SparsifyGroupBackward& given, const SparsifyGroupHopperPlan& plan, void* stream) {
  const SparsifyGroupProblem& problem = given.problem;
  HopperBackwardArguments arguments;
  if (Status status = make_arguments(arguments, problem, plan, given.text_tokens, given.image_tokens, given.text_mask); !status.ok()) {
    return status;
  }
  if (Status status = make_token_maps(arguments.grad_grouped, given.grad_grouped, problem, plan.token_rows); !status.ok()) return status;
  arguments.writes_text = given.grad_text_tokens.data != nullptr;
  arguments.writes_image = given.grad_image_tokens.data != nullptr;
  // The map of an output that is not needed is never used.
  const auto output = [&](const Rows& rows, std::int64_t count) { return tile_source(rows, problem.batch, count, problem.width); };
  if (arguments.writes_text) {
    const TileSource text = output(given.grad_text_tokens, problem.tokens);
    if (Status status = make_tile_map(arguments.grad_text, "sparsify_group", text, plan.token_rows); !status.ok()) return status;
  }
  if (arguments.writes_image) {
    const TileSource image = output(given.grad_image_tokens, problem.patches);
    if (Status status = make_tile_map(arguments.grad_image, "sparsify_group", image, 64); !status.ok()) return status;
  }
  arguments.row_statistics = given.row_statistics;
  return start<HopperBackwardBlock>("sparsify_group backward", arguments, stream);
}

}  // namespace TESSERA_DEVICE_NAMESPACE
}  // namespace tessera::kernels
