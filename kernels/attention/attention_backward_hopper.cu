// Backward: A block computes one head of one sequence. It copies all queries, keys, values and gradients of the output to shared memory.
// Each of its warpgroups owns one or two tiles of 64 keys, whose gradients it sums in registers. For as many tiles of 64 queries at a
// time as there are warpgroups:
//   1. Each warpgroup computes, for its keys and one tile of queries after the other, the transposed scores and the transposed gradients
//      of the weights. From these, it computes the weights and the gradients of the scores, rounds them to bfloat16, and multiplies them
//      by the gradients of the output and by the queries, with the operand in registers. It writes the gradients of the scores to shared
//      memory.
//   2. After a barrier, each warpgroup computes the gradients of one tile of queries, as a sum over all keys, and stores them.
// No sum has parts in different blocks, so there are no atomics and no sums in global memory. Global memory traffic: qkv, its gradient,
// the output and its gradient once.
#include "kernels/attention/heads.h"
#include "kernels/device/words.h"

namespace tessera::kernels {
namespace {

struct BackwardArguments {
  AttentionProblem problem;
  const Bfloat16 *qkv, *output, *grad_output;
  const float* statistics;
  Bfloat16* grad_qkv;
};

/// kGroups warpgroups have kTiles tiles of keys each. Sums over keys take 16 kSteps keys.
template <int kWidth, int kGroupsValue, int kTilesValue, int kStepsValue>
struct BackwardBlock {
  using Rows = HeadRows<kWidth>;
  using Sums = typename Rows::Sums;
  static constexpr int kGroups = kGroupsValue, kTiles = kTilesValue, kSteps = kStepsValue, kThreads = kGroups * kWarpgroup;
  static constexpr int kKeys = 16 * kSteps, kQueries = 64 * kGroups * kTiles;
  static constexpr int kKeyBytes = kKeys * Rows::kRowBytes, kQueryBytes = kQueries * Rows::kRowBytes;
  static constexpr int kChangeBytes = kKeys * kTileRowBytes;  // a tile of 64 queries
  // The sums of two tiles of wide heads leave no registers for the scores of 64 queries at a time.
  static constexpr int kTogether = kTiles == 2 && kWidth > 64 ? 32 : 64, kTogetherSums = kTogether / 2, kTogetherSteps = kTogether / 16;
  using Scores = float[kTogetherSums];
  using Words = std::uint32_t[kTogetherSteps][4];
  // Queries and gradients of the output, keys and values, gradients of scores for each warpgroup, and two numbers for each query. The last
  // tiles of keys and of values may end in the memory of what follows. These rows of the transposed scores are not used.
  static constexpr int kBytes = 2 * kQueryBytes + 2 * kKeyBytes + kGroups * kChangeBytes + 2 * kQueries * 4;
  static_assert((2 * kQueryBytes + 2 * kKeyBytes) % kTileAlignment == 0);

  const BackwardArguments& arguments;
  const AttentionProblem& p;
  const AttentionHead<kWidth> head;
  unsigned char *const queries, *const gradients, *const keys, *const values, *const changes;
  float *const statistics, *const products;  // `products` are those of the output and its gradient, summed over the width

  __device__ __forceinline__ BackwardBlock(const BackwardArguments& given, unsigned char* memory)
      : arguments(given),
        p(given.problem),
        head(given.problem),
        queries(memory),
        gradients(queries + kQueryBytes),
        keys(gradients + kQueryBytes),
        values(keys + kKeyBytes),
        changes(values + kKeyBytes),
        statistics(reinterpret_cast<float*>(changes + kGroups * kChangeBytes)),
        products(statistics + kQueries) {}

  static __device__ __forceinline__ int group() { return threadIdx.x / kWarpgroup; }
  static __device__ __forceinline__ int warp() { return threadIdx.x % kWarpgroup / 32; }
  __device__ __forceinline__ std::int64_t stride() const { return 3 * p.heads * kWidth; }
  __device__ __forceinline__ unsigned char* changes_of(int group) const { return changes + group * kChangeBytes; }

  /// Copies all rows, and computes the numbers of each query. Queries after the last one get a statistic that makes their weights 0.
  __device__ __forceinline__ void load() const {
    constexpr int kLanes = Rows::kLanes, kPieces = Rows::kPieces, kRowStep = kThreads / kLanes, kRows = kQueries / kRowStep;
    const std::int64_t output_stride = p.heads * kWidth;
    const int first = threadIdx.x / kLanes, column0 = threadIdx.x % kLanes * 8;
    const Bfloat16* const output = head.of_output(arguments.output, p) + column0;
    copy_tokens<kWidth, kThreads, kQueries>(gradients, head.of_output(arguments.grad_output, p), output_stride, head.tokens);
    copy_tokens<kWidth, kThreads, kQueries>(queries, head.of_part(arguments.qkv, p, 0), stride(), head.tokens);
    copy_tokens<kWidth, kThreads, kKeys>(keys, head.of_part(arguments.qkv, p, 1), stride(), head.tokens);
    copy_tokens<kWidth, kThreads, kKeys>(values, head.of_part(arguments.qkv, p, 2), stride(), head.tokens);
    commit_copies();
    Word words[kRows][kPieces];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = first + i * kRowStep;
#pragma unroll
      for (int j = 0; j < kPieces; ++j) {
        words[i][j] = row < head.tokens ? load_once(output + row * output_stride + 8 * j * kLanes) : Word{};
      }
    }
    wait_for_tokens<0>();
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = first + i * kRowStep;
      float sum = 0.0f;
#pragma unroll
      for (int j = 0; j < kPieces; ++j) {
        const Word& gradient = word_at<Word>(gradients + Rows::offset(row, column0 + 8 * j * kLanes));
#pragma unroll
        for (int e = 0; e < 8; ++e) sum = fmaf(element<Bfloat16>(words[i][j], e), element<Bfloat16>(gradient, e), sum);
      }
#pragma unroll
      for (int mask = 1; mask < kLanes; mask *= 2) sum += __shfl_xor_sync(kAllLanes, sum, mask);
      if (column0 == 0) {
        products[row] = sum;
        statistics[row] = row < head.tokens ? arguments.statistics[head.head * p.rows + head.first + row] : kInfinity;
      }
    }
    __syncthreads();
  }

  /// Computes the weights of a tile of keys and kTogether queries, and the gradients of their scores without the factor p.scale, as
  /// operands in registers. `scores` are the transposed scores, `gradients` those of the weights.
  __device__ __forceinline__ void convert(const Scores& scores, const Scores& of_weights, int key0, int query0, Words& weights,
                                          Words& of_scores) const {
    const float scale = p.scale * kLogOfE;
    const int key = key0 + 16 * warp() + threadIdx.x % 32 / 4, query = query0 + 2 * static_cast<int>(threadIdx.x % 4);
    const int first[2] = {head.first_query(p, key) - query, head.first_query(p, key + 8) - query};
#pragma unroll
    for (int j = 0; j < kTogether / 8; ++j) {
      const float2 statistic = word_at<float2>(statistics + query + 8 * j), product = word_at<float2>(products + query + 8 * j);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float weight[2], change[2];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int i = 4 * j + 2 * h + e;
          const bool sees = 8 * j + e >= first[h];
          weight[e] = sees ? power_of_two(fmaf(scores[i], scale, -(e == 0 ? statistic.x : statistic.y))) : 0.0f;
          change[e] = sees ? weight[e] * (of_weights[i] - (e == 0 ? product.x : product.y)) : 0.0f;
        }
        weights[j / 2][j % 2 * 2 + h] = bfloat16_pair(weight[0], weight[1]);
        of_scores[j / 2][j % 2 * 2 + h] = bfloat16_pair(change[0], change[1]);
      }
    }
  }

  /// Adds the part that kTogether queries have in the gradients of a tile of keys and values. Writes the gradients of the scores to a tile,
  /// from column query0 % 64 on.
  __device__ __forceinline__ void add_queries(Sums& grad_keys, Sums& grad_values, int key0, int query0,
                                              unsigned char* to) const {
    Scores scores, of_weights;
    fence_products(scores, of_weights);
#pragma unroll
    for (int k = 0; k < Rows::kSteps; ++k) {
      multiply<Depth::kAlongRows, Depth::kAlongRows>(scores, Rows::along(keys, key0, k), Rows::along(queries, query0, k), k > 0);
    }
#pragma unroll
    for (int k = 0; k < Rows::kSteps; ++k) {
      multiply<Depth::kAlongRows, Depth::kAlongRows>(of_weights, Rows::along(values, key0, k), Rows::along(gradients, query0, k), k > 0);
    }
    commit_products();
    wait_for_products<0>(scores, of_weights);
    Words weights, of_scores;
    convert(scores, of_weights, key0, query0, weights, of_scores);
    fence_products(grad_keys, grad_values, weights, of_scores);
#pragma unroll
    for (int s = 0; s < kTogetherSteps; ++s) {
      multiply<Depth::kAcrossRows>(grad_values, weights[s], Rows::across(gradients, query0, s), true);
      multiply<Depth::kAcrossRows>(grad_keys, of_scores[s], Rows::across(queries, query0, s), true);
    }
    commit_products();
    const int row = key0 + 16 * warp(), lane = threadIdx.x % 32;
    if (row < kKeys) {
#pragma unroll
      for (int s = 0; s < kTogetherSteps; ++s) {
        store_matrices(of_scores[s], to + tile_offset(row + lane % 16, query0 % 64 + 16 * s + lane / 16 * 8));
      }
    }
    wait_for_products<0>(grad_keys, grad_values, weights, of_scores);
  }

  /// Computes and stores the gradients of a tile of queries, from the gradients of the scores of the keys in kUsed tiles of each warpgroup.
  template <int kUsed>
  __device__ __forceinline__ void finish_queries(const unsigned char* of_scores, int query0) const {
    constexpr int kUsedSteps = kSteps < 4 * kGroups * kUsed ? kSteps : 4 * kGroups * kUsed;
    const Operand from = tile_operand(of_scores);
    Sums sums;
    fence_products(sums);
#pragma unroll
    for (int s = 0; s < kUsedSteps; ++s) {
      multiply<Depth::kAcrossRows, Depth::kAcrossRows>(sums, from.after(s * kAcrossRowsStep), Rows::across(keys, 0, s), s > 0);
    }
    commit_products();
    wait_for_products<0>(sums);
    store_tokens(sums, head.of_part(arguments.grad_qkv, p, 0), stride(), query0, head.tokens, [&](int) { return p.scale; });
  }

  /// Computes all gradients of a head whose keys fit into kUsed tiles of each warpgroup.
  template <int kUsed>
  __device__ __forceinline__ void run() const {
    load();
    Sums grad_keys[kUsed] = {}, grad_values[kUsed] = {};
#pragma unroll 1
    for (int query0 = 0; query0 < head.tokens; query0 += 64 * kGroups) {
#pragma unroll 1
      for (int query = query0; query < query0 + 64 * kGroups; query += kTogether) {
#pragma unroll
        for (int t = 0; t < kUsed; ++t) {
          add_queries(grad_keys[t], grad_values[t], 64 * (t * kGroups + group()), query, changes_of((query - query0) / 64));
        }
      }
      fence_for_copies();
      __syncthreads();
      finish_queries<kUsed>(changes_of(group()), query0 + 64 * group());
      __syncthreads();
    }
#pragma unroll
    for (int t = 0; t < kUsed; ++t) {
      const int key0 = 64 * (t * kGroups + group());
      store_tokens(grad_keys[t], head.of_part(arguments.grad_qkv, p, 1), stride(), key0, head.tokens, [&](int) { return p.scale; });
      store_tokens(grad_values[t], head.of_part(arguments.grad_qkv, p, 2), stride(), key0, head.tokens, [](int) { return 1.0f; });
    }
  }
};

template <int kWidth, int kGroups, int kTiles, int kSteps>
__global__ void __launch_bounds__(kGroups* kWarpgroup) attention_backward_kernel(const BackwardArguments arguments) {
  TESSERA_ALIGNED_SHARED(memory);
  const BackwardBlock<kWidth, kGroups, kTiles, kSteps> block(arguments, memory);
  if (block.head.tokens == 0) return;
  if (kTiles == 1 || block.head.tokens <= 64 * kGroups) {
    block.template run<1>();
  } else {
    block.template run<kTiles>();
  }
}

template <int kWidth, int kGroups, int kTiles, int kSteps>
Status start(const AttentionBackward& call, void* stream) {
  using Block = BackwardBlock<kWidth, kGroups, kTiles, kSteps>;
  const AttentionProblem& p = call.problem;
  const auto narrow = [](const void* data) { return static_cast<const Bfloat16*>(data); };
  const BackwardArguments arguments = {p, narrow(call.qkv), narrow(call.output), narrow(call.grad_output), call.statistics,
                                       static_cast<Bfloat16*>(call.grad_qkv)};
  return launch("attention", attention_backward_kernel<kWidth, kGroups, kTiles, kSteps>, dim3(static_cast<unsigned>(p.sequences * p.heads)),
                Block::kThreads, Block::kBytes, stream, arguments);
}

template <int kWidth>
Status start(const AttentionBackward& call, void* stream) {
  switch (attention_configuration(kAttentionBackward, call.problem)->tokens) {
    case 64: return start<kWidth, 1, 1, 4>(call, stream);
    case 80: return start<kWidth, 1, 2, 5>(call, stream);
    case 128: return start<kWidth, 1, 2, 8>(call, stream);
    case 208: return start<kWidth, 2, 2, 13>(call, stream);
    default: return start<kWidth, 2, 2, 16>(call, stream);
  }
}

}  // namespace

namespace TESSERA_DEVICE_NAMESPACE {

Status attention_backward(const AttentionBackward& arguments, void* stream) {
  const AttentionProblem& p = arguments.problem;
  if (Status status = check(arguments); !status.ok() || p.sequences == 0 || p.rows == 0) return status;
  return p.head_width == 64 ? start<64>(arguments, stream) : start<80>(arguments, stream);
}

}  // namespace TESSERA_DEVICE_NAMESPACE
}  // namespace tessera::kernels
