// The backward pass on Hopper GPUs, as products. The gradient of an image's patches is the sum over all texts of W tokens, where
//   W[p, r] = (grad_i2t / number of patches if p's best token is r) + (grad_t2i / number of tokens if r's best patch is p).
// The gradient of a text's tokens is the sum over all images of W^T patches. The kernel runs once for the patches and, with the roles
// exchanged, once for the tokens: `own` refers to the rows whose gradient it computes, and `other` to those that it adds.
// A block computes the gradient of 256 own rows and 128 columns. The own rows of all images (or texts) follow one another, so a block's
// rows may belong to several of them. It has three warpgroups:
//   - A thread (the loader) copies the other rows, packed (packed_rows.h), to a ring of buffers, 64 rows of an image (or text) at a time.
//   - Three warps (the choosers) copy to each buffer what W is made of: the choices of the own and of the other rows, and the weights.
//   - Two warpgroups (the consumers) multiply. They build W in registers, which are the operand a of the products.
// Sums have a fixed order: that of the batch, and within an image (or text) that of its rows.
// W is rounded to bfloat16. For float32, W and the rows are sums of two parts, and their product is the sum of three products of parts, so
// it differs by at most 2^-15 of the sum of absolute values.
#include <algorithm>

#include "kernels/device/current_device.h"
#include "kernels/device/hopper.h"
#include "kernels/device/tensor_core.h"
#include "kernels/max_similarity/backward.h"
#include "kernels/max_similarity/packed_rows.h"

namespace tessera::kernels {
namespace {

using Plan = MaxSimilarityGradientPlan;

constexpr int kConsumers = 2, kConsumerThreads = kConsumers * kWarpgroup, kThreads = kWarpgroup + kConsumerThreads;
constexpr int kTiles = 2;  // tiles of 64 own rows of a consumer
constexpr int kColumns = 128, kSums = kColumns / 2;
constexpr int kChoosers = 3;  // warps
constexpr int kOwnPerLane = Plan::kRows / 32;
constexpr int kSlotsTogether = 8;  // whose numbers a chooser loads at once
constexpr int kBatchRows = 64;     // other rows of a buffer
constexpr Place kNone = -1;

struct SideArguments {
  TileMap rows;  // of the others
  PackedRows others;
  std::int64_t other_groups, own_rows;  // own_rows: of all images or texts
  std::int64_t group_step,
      other_step;  // strides of a [B, C] tensor: from group to group, and from one of the others to the next
  int own_size, groups, products, width;
  const std::uint8_t* own_keep;
  const std::int32_t* own_counts;
  const Place *best_other,
      *best_own;  // [pairs, own_size], the best other row of each own row; [pairs, size of the others]
  const float *own_gradient, *other_gradient;
  void* gradient;
  Plan plan;
};

/// Compares two pairs of indices. Returns 0xffff in each half in which they are equal, otherwise 0. kNone is equal to nothing.
__device__ __forceinline__ std::uint32_t equal_indices(std::uint32_t a, std::uint32_t b) {
#if defined(TESSERA_CUDA_EMULATION)
  const auto mask = [&](std::uint32_t half) { return (a & half) == (b & half) && (a & half) != half ? half : 0u; };
  return mask(0xffffu) | mask(0xffff0000u);
#else
  std::uint32_t mask;  // indices are small, so as numbers of half precision they are finite, and kNone is NaN
  asm("set.eq.u32.f16x2 %0, %1, %2;" : "=r"(mask) : "r"(a), "r"(b));
  return mask;
#endif
}
__device__ __forceinline__ std::uint32_t index_pair(Place first, Place second) {
  return static_cast<std::uint16_t>(first) | static_cast<std::uint32_t>(static_cast<std::uint16_t>(second)) << 16;
}

/// What an element of W is if only the own row chose the other one, or only the other row chose the own one; `change` is the exclusive or
/// of both and of what it is if they chose each other. Each word holds its number twice.
struct Weights {
  std::uint32_t own, other, change;
};
/// Returns the part of the weights that a product of parts needs: the weights rounded, or what the rounding left.
__device__ __forceinline__ Weights part_of_weights(float own, float other, bool rest) {
  const auto part = [&](float weight) {
    const float used = rest ? weight - to_float(from_float<Bfloat16>(weight)) : weight;
    return bfloat16_pair(used, used);
  };
  const std::uint32_t words[] = {part(own), part(other), part(own + other)};
  return {words[0], words[1], words[0] ^ words[1] ^ words[2]};
}

/// One of the two rows that a thread has in each of its tiles.
struct OwnRow {
  std::uint32_t choice, index;  // twice; index: in its image or text
  Weights weights;
};

struct GradientBlock {
  const SideArguments& arguments;
  unsigned char* const shared;
  const std::int64_t first_row;
  const int first_group;

  __device__ __forceinline__ GradientBlock(const SideArguments& given, unsigned char* memory)
      : arguments(given),
        shared(memory),
        first_row(static_cast<std::int64_t>(blockIdx.x) * Plan::kRows),
        first_group(static_cast<int>(first_row / given.own_size)) {}

  __device__ __forceinline__ const Plan& plan() const { return arguments.plan; }
  __device__ __forceinline__ int first_column() const { return static_cast<int>(blockIdx.y) * kColumns; }
  __device__ __forceinline__ unsigned char* tiles(const RingPlace& place) const { return shared + place.buffer * 2 * Plan::kTileBytes; }
  __device__ __forceinline__ unsigned char* numbers(const RingPlace& place) const {
    return shared + plan().stages * 2 * Plan::kTileBytes + place.buffer * plan().number_bytes;
  }
  __device__ __forceinline__ Barrier* barriers() const {
    return reinterpret_cast<Barrier*>(shared + plan().stages * (2 * Plan::kTileBytes + plan().number_bytes));
  }
  // The copies and the numbers of a buffer are complete; and it may be filled again.
  __device__ __forceinline__ Barrier& full(const RingPlace& place) const { return barriers()[place.buffer]; }
  __device__ __forceinline__ Barrier& free(const RingPlace& place) const { return barriers()[plan().stages + place.buffer]; }

  /// Calls visit(place, other, first of its rows, product) for each buffer to fill, in order. Returns the place after the last one.
  template <class Visit>
  __device__ __forceinline__ RingPlace for_each_buffer(Visit visit) const {
    RingPlace place;
    int next = arguments.others.counts[0];
#pragma unroll 1
    for (std::int64_t other = 0; other < arguments.other_groups; ++other) {
      const int count = next;
      if (other + 1 < arguments.other_groups) next = arguments.others.counts[other + 1];
#pragma unroll 1
      for (int row0 = 0; row0 < count; row0 += kBatchRows) {
#pragma unroll 1
        for (int product = 0; product < arguments.products; ++product, place.next(plan().stages)) visit(place, other, count, row0, product);
      }
    }
    return place;
  }

  // Of the products of parts, the first is upper rows with upper weights, then upper rows with lower weights, and lower rows with upper
  // weights.
  __device__ __forceinline__ void load() const {
    const RingPlace end = for_each_buffer([&](const RingPlace& place, std::int64_t other, int, int row0, int product) {
      free(place).wait(place.parity ^ 1u);
      full(place).expect(2 * Plan::kTileBytes);
      for (int tile = 0; tile < 2; ++tile) {
        load_tile(tiles(place) + tile * Plan::kTileBytes, arguments.rows, full(place),
                  {first_column() + tile * kTileColumns, row0, product / 2, static_cast<int>(other)}, Keep::kLong);
      }
    });
    free(end).wait(end.parity ^ 1u);
    full(end).arrive();
  }

  /// Writes the numbers of a buffer. `own` has the places of the lane's own rows in best_other, from the block's first pair on; -1 if a row
  /// is not kept.
  __device__ __forceinline__ void write_numbers(unsigned char* to, std::int64_t other, int count, int row0, int product,
                                                const int (&own)[kOwnPerLane]) const {
    const int lane = static_cast<int>(threadIdx.x % 32), size = arguments.others.size;
    const std::int64_t pair0 = first_group * arguments.group_step + other * arguments.other_step;
    const Place* const best_other = arguments.best_other + pair0 * arguments.own_size;
    // The lane loads all numbers before it stores one, because it waits for the first one as long as for all.
    Place choices[kOwnPerLane], indices[2];
#pragma unroll
    for (int i = 0; i < kOwnPerLane; ++i) choices[i] = own[i] >= 0 ? best_other[own[i]] : kNone;
    const bool weighs = lane < plan().slots && first_group + lane < arguments.groups;
    const std::int64_t pair = pair0 + lane * arguments.group_step;
    const int own_count = weighs ? arguments.own_counts[first_group + lane] : 0;
    const float own_gradient = weighs ? arguments.own_gradient[pair] : 0.0f,
                other_gradient = weighs ? arguments.other_gradient[pair] : 0.0f;
    // The lane has two of the other rows. They are in the order in which a consumer's thread needs them: 2 q, 2 q + 1, 2 q + 8, 2 q + 9.
    const int row = row0 + 2 * lane, at = lane / 8 * 32 + lane % 4 * 8 + lane % 8 / 4 * 4;
#pragma unroll
    for (int e = 0; e < 2; ++e) indices[e] = row + e < count ? arguments.others.kept[other * size + row + e] : kNone;
#pragma unroll 1
    for (int slot0 = 0; slot0 < plan().slots; slot0 += kSlotsTogether) {
      Place best[kSlotsTogether][2];
#pragma unroll
      for (int s = 0; s < kSlotsTogether; ++s) {
        const int slot = slot0 + s;
        const bool exists = slot < plan().slots && first_group + slot < arguments.groups;
        const Place* const best_own = arguments.best_own + (pair0 + slot * arguments.group_step) * size;
#pragma unroll
        for (int e = 0; e < 2; ++e) best[s][e] = exists && indices[e] >= 0 ? best_own[indices[e]] : kNone;
      }
#pragma unroll
      for (int s = 0; s < kSlotsTogether; ++s) {
        if (slot0 + s >= plan().slots) break;
        word_at<std::uint32_t>(to + Plan::kSlots + (slot0 + s) * Plan::kSlotBytes + at) = index_pair(best[s][0], best[s][1]);
      }
    }
    if (weighs) {  // nothing is chosen in an image or text without kept rows; its choices are 0 nevertheless
      const float own_weight = own_count > 0 ? own_gradient / static_cast<float>(own_count) : 0.0f;
      const float other_weight = own_count > 0 ? other_gradient / static_cast<float>(count) : 0.0f;
      const Weights weights = part_of_weights(own_weight, other_weight, product == 1);
      using Four = Piece<std::uint32_t, 4>;
      word_at<Four>(to + Plan::kSlots + lane * Plan::kSlotBytes + 128) = {{weights.own, weights.other, weights.change, 0}};
    }
#pragma unroll
    for (int i = 0; i < kOwnPerLane; ++i) word_at<Place>(to + Plan::kChoices + 2 * (lane + 32 * i)) = choices[i];
    word_at<std::uint32_t>(to + Plan::kIndices + at) = index_pair(indices[0], indices[1]);
  }

  __device__ __forceinline__ void choose() const {
    const int lane = static_cast<int>(threadIdx.x % 32), chooser = static_cast<int>(threadIdx.x / 32) - 1;
    int own[kOwnPerLane];
#pragma unroll
    for (int i = 0; i < kOwnPerLane; ++i) {
      const std::int64_t row = first_row + lane + 32 * i;
      const int group = static_cast<int>(row / arguments.own_size);
      own[i] = row < arguments.own_rows && arguments.own_keep[row] != 0
                   ? static_cast<int>((group - first_group) * arguments.group_step * arguments.own_size + row % arguments.own_size)
                   : -1;
    }
    int turn = 0;
    const RingPlace end = for_each_buffer([&](const RingPlace& place, std::int64_t other, int count, int row0, int product) {
      const bool mine = turn == chooser;
      turn = turn + 1 < kChoosers ? turn + 1 : 0;
      if (!mine) return;
      free(place).wait(place.parity ^ 1u);
      write_numbers(numbers(place), other, count, row0, product, own);
      if (lane == 0) word_at<int>(numbers(place)) = count - row0 > kPackedRows ? kBatchRows / kPackedRows : 1;
      full(place).arrive();
    });
    if (turn != chooser) return;
    free(end).wait(end.parity ^ 1u);
    if (lane == 0) word_at<int>(numbers(end)) = 0;  // there are no more rows
    full(end).arrive();
  }

  /// Builds the operands for 16 other rows: W[64, 16] of each tile. `from` and `slots` are those of the thread's share of these rows.
  static __device__ __forceinline__ void build(std::uint32_t (&words)[kTiles][4], const OwnRow (&rows)[kTiles][2],
                                               const unsigned char* from, const int (&slots)[kTiles][2]) {
    using Indices = Piece<std::uint32_t, 2>;  // four of them
    const Indices indices = word_at<Indices>(from + Plan::kIndices);
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const OwnRow& row = rows[i][h];
        const Indices choices = word_at<Indices>(from + slots[i][h]);
#pragma unroll
        for (int later = 0; later < 2; ++later) {
          const std::uint32_t chosen = equal_indices(row.choice, indices.values[later]);
          const std::uint32_t chooses = equal_indices(row.index, choices.values[later]);
          words[i][2 * later + h] = (chosen & row.weights.own) ^ (chooses & (row.weights.other ^ (chosen & row.weights.change)));
        }
      }
    }
  }

  template <class Element, int kConsumer>
  __device__ __forceinline__ void consume() const {
    const int thread = static_cast<int>(threadIdx.x) % kWarpgroup, quarter = thread % 4;
    OwnRow rows[kTiles][2];
    int slots[kTiles][2];  // offsets of the rows' slots
    float sums[kTiles][kSums] = {};
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const std::int64_t row = first_row + 64 * (kConsumer * kTiles + i) + sum_row(thread, 2 * h);
        const bool exists = row < arguments.own_rows;
        const Place index = exists ? static_cast<Place>(row % arguments.own_size) : kNone;
        rows[i][h].index = index_pair(index, index);
        slots[i][h] = Plan::kSlots + (exists ? static_cast<int>(row / arguments.own_size) - first_group : 0) * Plan::kSlotBytes;
      }
    }
    std::uint32_t words[2][kTiles][4] = {};
    RingPlace place;
#pragma unroll 1
    for (;; place.next(plan().stages)) {
      full(place).wait(place.parity);
      const unsigned char* const from = numbers(place);
      const int rounds = word_at<int>(from);
      if (rounds == 0) break;
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int own = 64 * (kConsumer * kTiles + i) + sum_row(thread, 2 * h);
          const Place choice = word_at<Place>(from + Plan::kChoices + 2 * own);
          const auto weights = word_at<Piece<std::uint32_t, 4>>(from + slots[i][h] + 128);
          rows[i][h].choice = index_pair(choice, choice);
          rows[i][h].weights = {weights.values[0], weights.values[1], weights.values[2]};
        }
      }
      const Operand others = tile_operand(tiles(place), Plan::kTileBytes);
#pragma unroll 1
      for (int round = 0; round < rounds; ++round) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {  // while 16 rows are multiplied, the next W is built
          const int step = 2 * round + half;
          build(words[half], rows, from + 32 * step + 8 * quarter, slots);
          fence_products(sums[0], sums[1], words[half][0], words[half][1]);
#pragma unroll
          for (int i = 0; i < kTiles; ++i) {
            multiply<Depth::kAcrossRows>(sums[i], words[half][i], others.after(step * kAcrossRowsStep), true);
          }
          commit_products();
          wait_for_products<1>(words[1 - half][0], words[1 - half][1]);
        }
      }
      wait_for_products<0>(sums[0], sums[1], words[0][0], words[0][1], words[1][0], words[1][1]);
      free(place).arrive();
    }
    store<Element, kConsumer>(sums);
  }

  /// Stores the sums as the gradient, and zeros for rows that are not kept.
  template <class Element, int kConsumer>
  __device__ __forceinline__ void store(const float (&sums)[kTiles][kSums]) const {
    const std::int64_t width = arguments.width;
    Element* const to = static_cast<Element*>(arguments.gradient);
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      const std::int64_t first = first_row + 64 * (kConsumer * kTiles + i) + threadIdx.x % kWarpgroup / 32 * 16;
      float results[kColumns / 8][4];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const std::int64_t row = first + threadIdx.x % 32 / 4 + 8 * h;
        const bool kept = row < arguments.own_rows && arguments.own_keep[row] != 0;
#pragma unroll
        for (int j = 0; j < kColumns / 8; ++j) {
          results[j][2 * h] = kept ? sums[i][4 * j + 2 * h] : 0.0f;
          results[j][2 * h + 1] = kept ? sums[i][4 * j + 2 * h + 1] : 0.0f;
        }
      }
      store_tiles<Element>(results, first_column(), static_cast<int>(width), true,
                           [&](int row) { return first + row < arguments.own_rows ? to + (first + row) * width : nullptr; });
    }
  }

  template <class Element>
  __device__ __forceinline__ void run() const {
    if (threadIdx.x == 0) {
      for (RingPlace place; place.buffer < plan().stages; ++place.buffer) {
        full(place).start(1 + 32);
        free(place).start(kConsumerThreads);
      }
      fence_barriers();
    }
    __syncthreads();
    if (threadIdx.x < kWarpgroup) {
      release_registers<88>();
      if (threadIdx.x == 0) {
        load();
      } else if (threadIdx.x >= 32) {
        choose();
      }
    } else {
      claim_registers<208>();
      if (threadIdx.x < 2 * kWarpgroup) {
        consume<Element, 0>();
      } else {
        consume<Element, 1>();
      }
    }
  }
};

template <class Element>
__global__ void __launch_bounds__(kThreads, 1) max_similarity_gradient_kernel(const __grid_constant__ SideArguments arguments) {
  TESSERA_ALIGNED_SHARED(shared);
  GradientBlock(arguments, shared).run<Element>();
}

Status start(SideArguments& arguments, DataType type, void* stream) {
  if (arguments.gradient == nullptr) return {};
  const TileSource rows = packed_source(arguments.others, arguments.other_groups);
  if (Status status = make_tile_map(arguments.rows, "max_similarity", rows, kBatchRows); !status.ok()) return status;
  const dim3 grid(static_cast<unsigned>((arguments.own_rows + Plan::kRows - 1) / Plan::kRows),
                  static_cast<unsigned>((arguments.width + kColumns - 1) / kColumns));
  const auto kernel = type == DataType::kBfloat16 ? max_similarity_gradient_kernel<Bfloat16> : max_similarity_gradient_kernel<float>;
  return launch("max_similarity backward", kernel, grid, kThreads, arguments.plan.bytes, stream, arguments);
}

}  // namespace

namespace TESSERA_DEVICE_NAMESPACE {

Status max_similarity_backward_hopper(const MaxSimilarityBackward& given, void* stream) {
  const MaxSimilarityProblem& problem = given.problem;
  PackedRows patches, tokens;
  lay_out(problem, given.workspace, patches, tokens);
  if (Status status = pack_both(patches, tokens, given, stream); !status.ok()) return status;
  SideArguments images;
  images.others = tokens;
  images.other_groups = problem.texts;
  images.own_rows = problem.images * problem.patches;
  images.group_step = problem.texts;
  images.other_step = 1;
  images.own_size = patches.size;
  images.groups = static_cast<int>(problem.images);
  images.products = patches.parts == 1 ? 1 : 3;
  images.width = static_cast<int>(problem.width);
  images.own_keep = given.patch_keep;
  images.own_counts = patches.counts;
  images.best_other = given.best_token;
  images.best_own = given.best_patch;
  images.own_gradient = given.grad_i2t;
  images.other_gradient = given.grad_t2i;
  images.gradient = given.grad_patches;
  images.plan = gradient_plan(problem, true, current_device());
  if (Status status = start(images, problem.type, stream); !status.ok()) return status;

  SideArguments texts = images;
  texts.others = patches;
  texts.other_groups = problem.images;
  texts.own_rows = problem.texts * problem.tokens;
  std::swap(texts.group_step, texts.other_step);
  texts.own_size = tokens.size;
  texts.groups = static_cast<int>(problem.texts);
  texts.own_keep = given.token_keep;
  texts.own_counts = tokens.counts;
  std::swap(texts.best_other, texts.best_own);
  std::swap(texts.own_gradient, texts.other_gradient);
  texts.gradient = given.grad_tokens;
  texts.plan = gradient_plan(problem, false, current_device());
  return start(texts, problem.type, stream);
}

}  // namespace TESSERA_DEVICE_NAMESPACE
}  // namespace tessera::kernels
