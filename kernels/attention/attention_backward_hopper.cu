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
template <int kGroupsValue, int kTilesValue, int kStepsValue>
struct BackwardBlock {
  static constexpr int kGroups = kGroupsValue, kTiles = kTilesValue, kSteps = kStepsValue, kThreads = kGroups * kWarpgroup;
  static constexpr int kKeys = 16 * kSteps, kQueries = 64 * kGroups * kTiles;
  static constexpr int kKeyBytes = kKeys * kTileRowBytes, kQueryBytes = kQueries * kTileRowBytes;
  // Queries and gradients of the output, keys and values, gradients of scores for each warpgroup, and two numbers for each query. The last
  // tiles of keys and of values may end in the memory of what follows. These rows of the transposed scores are not used.
  static constexpr int kBytes = 2 * kQueryBytes + (2 + kGroups) * kKeyBytes + 2 * kQueries * 4;

  const BackwardArguments& arguments;
  const AttentionProblem& p;
  const AttentionHead head;
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
        statistics(reinterpret_cast<float*>(changes + kGroups * kKeyBytes)),
        products(statistics + kQueries) {}

  static __device__ __forceinline__ int group() { return threadIdx.x / kWarpgroup; }
  static __device__ __forceinline__ int warp() { return threadIdx.x % kWarpgroup / 32; }
  __device__ __forceinline__ std::int64_t stride() const { return 3 * p.heads * kTileColumns; }
  __device__ __forceinline__ unsigned char* changes_of(int group) const { return changes + group * kKeyBytes; }

  /// Copies all rows, and computes the numbers of each query. Queries after the last one get a statistic that makes their weights 0.
  __device__ __forceinline__ void load() const {
    constexpr int kRowStep = kThreads / 8, kRows = kQueries / kRowStep;
    const std::int64_t output_stride = p.heads * kTileColumns;
    const int first = threadIdx.x / 8, column = threadIdx.x % 8 * 8;
    const Bfloat16* const output = head.of_output(arguments.output, p) + column;
    copy_tokens<kThreads, kQueries>(gradients, head.of_output(arguments.grad_output, p), output_stride, head.tokens);
    copy_tokens<kThreads, kQueries>(queries, head.of_part(arguments.qkv, p, 0), stride(), head.tokens);
    copy_tokens<kThreads, kKeys>(keys, head.of_part(arguments.qkv, p, 1), stride(), head.tokens);
    copy_tokens<kThreads, kKeys>(values, head.of_part(arguments.qkv, p, 2), stride(), head.tokens);
    commit_copies();
    Word words[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = first + i * kRowStep;
      words[i] = row < head.tokens ? load_once(output + row * output_stride) : Word{};
    }
    wait_for_tokens<0>();
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = first + i * kRowStep;
      const Word& gradient = word_at<Word>(gradients + tile_offset(row, column));
      float sum = 0.0f;
#pragma unroll
      for (int e = 0; e < kWordElements<Bfloat16>; ++e) sum = fmaf(element<Bfloat16>(words[i], e), element<Bfloat16>(gradient, e), sum);
#pragma unroll
      for (int mask = 1; mask < 8; mask *= 2) sum += __shfl_xor_sync(kAllLanes, sum, mask);
      if (column == 0) {
        products[row] = sum;
        statistics[row] = row < head.tokens ? arguments.statistics[head.head * p.rows + head.first + row] : kInfinity;
      }
    }
    __syncthreads();
  }

  /// Computes the weights of a tile of keys and a tile of queries, and the gradients of their scores without the factor p.scale, as
  /// operands in registers. `scores` are the transposed scores, `gradients` those of the weights.
  __device__ __forceinline__ void convert(const float (&scores)[32], const float (&of_weights)[32], int key0, int query0,
                                          std::uint32_t (&weights)[4][4], std::uint32_t (&of_scores)[4][4]) const {
    const float scale = p.scale * kLogOfE;
    const int key = key0 + 16 * warp() + threadIdx.x % 32 / 4, query = query0 + 2 * static_cast<int>(threadIdx.x % 4);
    const int first[2] = {head.first_query(p, key) - query, head.first_query(p, key + 8) - query};
#pragma unroll
    for (int j = 0; j < 8; ++j) {
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

  /// Adds the part that a tile of queries has in the gradients of a tile of keys and values. Writes the gradients of the scores to `to`.
  __device__ __forceinline__ void add_queries(float (&grad_keys)[kHeadSums], float (&grad_values)[kHeadSums], int key0, int query0,
                                              unsigned char* to) const {
    const Operand these_keys = tile_operand(keys + key0 * kTileRowBytes), these_values = tile_operand(values + key0 * kTileRowBytes);
    const Operand these_queries = tile_operand(queries + query0 * kTileRowBytes),
                  these_gradients = tile_operand(gradients + query0 * kTileRowBytes);
    float scores[32], of_weights[32];
    fence_products(scores, of_weights);
#pragma unroll
    for (int k = 0; k < kHeadSteps; ++k) {
      const int offset = k * kAlongRowsStep;
      multiply<Depth::kAlongRows, Depth::kAlongRows>(scores, these_keys.after(offset), these_queries.after(offset), k > 0);
    }
#pragma unroll
    for (int k = 0; k < kHeadSteps; ++k) {
      const int offset = k * kAlongRowsStep;
      multiply<Depth::kAlongRows, Depth::kAlongRows>(of_weights, these_values.after(offset), these_gradients.after(offset), k > 0);
    }
    commit_products();
    wait_for_products<0>(scores, of_weights);
    std::uint32_t weights[4][4], of_scores[4][4];
    convert(scores, of_weights, key0, query0, weights, of_scores);
    fence_products(grad_keys, grad_values, weights, of_scores);
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      multiply<Depth::kAcrossRows>(grad_values, weights[s], these_gradients.after(s * kAcrossRowsStep), true);
      multiply<Depth::kAcrossRows>(grad_keys, of_scores[s], these_queries.after(s * kAcrossRowsStep), true);
    }
    commit_products();
    const int row = key0 + 16 * warp(), lane = threadIdx.x % 32;
    if (row < kKeys) {
#pragma unroll
      for (int s = 0; s < 4; ++s) store_matrices(of_scores[s], to + tile_offset(row + lane % 16, 16 * s + lane / 16 * 8));
    }
    wait_for_products<0>(grad_keys, grad_values, weights, of_scores);
  }

  /// Computes and stores the gradients of a tile of queries, from the gradients of the scores of the keys in kUsed tiles of each warpgroup.
  template <int kUsed>
  __device__ __forceinline__ void finish_queries(const unsigned char* of_scores, int query0) const {
    constexpr int kUsedSteps = kSteps < 4 * kGroups * kUsed ? kSteps : 4 * kGroups * kUsed;
    const Operand from = tile_operand(of_scores), all_keys = tile_operand(keys);
    float sums[kHeadSums];
    fence_products(sums);
#pragma unroll
    for (int s = 0; s < kUsedSteps; ++s) {
      const int offset = s * kAcrossRowsStep;
      multiply<Depth::kAcrossRows, Depth::kAcrossRows>(sums, from.after(offset), all_keys.after(offset), s > 0);
    }
    commit_products();
    wait_for_products<0>(sums);
    store_tokens(sums, head.of_part(arguments.grad_qkv, p, 0), stride(), query0, head.tokens, [&](int) { return p.scale; });
  }

  /// Computes all gradients of a head whose keys fit into kUsed tiles of each warpgroup.
  template <int kUsed>
  __device__ __forceinline__ void run() const {
    load();
    float grad_keys[kUsed][kHeadSums] = {}, grad_values[kUsed][kHeadSums] = {};
#pragma unroll 1
    for (int query0 = 0; query0 < head.tokens; query0 += 64 * kGroups) {
#pragma unroll 1
      for (int i = 0; i < kGroups; ++i) {
#pragma unroll
        for (int t = 0; t < kUsed; ++t) {
          add_queries(grad_keys[t], grad_values[t], 64 * (t * kGroups + group()), query0 + 64 * i, changes_of(i));
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

template <int kGroups, int kTiles, int kSteps>
__global__ void __launch_bounds__(kGroups* kWarpgroup) attention_backward_kernel(const BackwardArguments arguments) {
  TESSERA_ALIGNED_SHARED(memory);
  const BackwardBlock<kGroups, kTiles, kSteps> block(arguments, memory);
  if (block.head.tokens == 0) return;
  if (kTiles == 1 || block.head.tokens <= 64 * kGroups) {
    block.template run<1>();
  } else {
    block.template run<kTiles>();
  }
}

template <int kGroups, int kTiles, int kSteps>
Status start(const AttentionBackward& call, void* stream) {
  using Block = BackwardBlock<kGroups, kTiles, kSteps>;
  const AttentionProblem& p = call.problem;
  const auto narrow = [](const void* data) { return static_cast<const Bfloat16*>(data); };
  const BackwardArguments arguments = {p, narrow(call.qkv), narrow(call.output), narrow(call.grad_output), call.statistics,
                                       static_cast<Bfloat16*>(call.grad_qkv)};
  return launch("attention", attention_backward_kernel<kGroups, kTiles, kSteps>, dim3(static_cast<unsigned>(p.sequences * p.heads)),
                Block::kThreads, Block::kBytes, stream, arguments);
}

}  // namespace

namespace TESSERA_DEVICE_NAMESPACE {

Status attention_backward(const AttentionBackward& arguments, void* stream) {
  const AttentionProblem& p = arguments.problem;
  if (Status status = check(arguments); !status.ok() || p.sequences == 0 || p.rows == 0) return status;
  switch (attention_configuration(kAttentionBackward, p)->tokens) {
    case 64: return start<1, 1, 4>(arguments, stream);
    case 80: return start<1, 2, 5>(arguments, stream);
    case 128: return start<1, 2, 8>(arguments, stream);
    case 208: return start<2, 2, 13>(arguments, stream);
    default: return start<2, 2, 16>(arguments, stream);
  }
}

}  // namespace TESSERA_DEVICE_NAMESPACE
}  // namespace tessera::kernels
