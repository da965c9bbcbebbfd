// Forward: A block of one warpgroup computes one head of one sequence. It copies all queries, keys and values to shared memory. Then, for
// 64 queries at a time:
//   1. Compute the scores of all keys, which stay in registers, so that the softmax needs no second pass over the keys.
//   2. Compute the weights, round them to bfloat16, and multiply them by the values, with the weights as the operand in registers.
// Two or more blocks per multiprocessor copy and compute in turn. Global memory traffic: qkv and the output once.
#include "kernels/attention/heads.h"
#include "kernels/device/block_memory.h"

namespace tessera::kernels {
namespace {

struct ForwardArguments {
  AttentionProblem problem;
  const Bfloat16* qkv;
  Bfloat16* output;
  float* statistics;
};

/// The scores of up to kKeys keys. The sums over keys take 16 keys at a time, so there may be zeros for more of them.
template <int kWidth, int kKeys>
struct ForwardBlock {
  static constexpr int kSums = kKeys / 2, kSteps = (kKeys + 15) / 16, kRows = 16 * kSteps, kPartBytes = kRows * HeadRows<kWidth>::kRowBytes;
  static constexpr int kBytes = 3 * kPartBytes;
  static constexpr int kBlocks = kKeys <= 80 ? 4 : kKeys <= 128 ? 3 : kBytes <= 112 * 1024 ? 2 : 1;  // per multiprocessor

  /// Replaces a thread's scores by the weights before their division by the sum of their row. Returns this sum and the row's statistics for
  /// the thread's two rows, which are those of `query` and of query + 8.
  static __device__ __forceinline__ void exponentiate(float (&scores)[kSums], const AttentionHead<kWidth>& head, const AttentionProblem& p,
                                                      int query, float (&sums)[2], float (&statistics)[2]) {
    const int quarter = threadIdx.x % 4;
    const float scale = p.scale * kLogOfE;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int last = head.last_key(p, query + 8 * h) - 2 * quarter;
      float highest = -kInfinity, sum = 0.0f;
#pragma unroll
      for (int i = 0; i < kSums; ++i) {
        if (i / 2 % 2 != h) continue;
        if (i / 4 * 8 + i % 2 > last) scores[i] = -kInfinity;
        highest = fmaxf(highest, scores[i]);
      }
      highest = fmaxf(highest, __shfl_xor_sync(kAllLanes, highest, 1));
      highest = fmaxf(highest, __shfl_xor_sync(kAllLanes, highest, 2)) * scale;
#pragma unroll
      for (int i = 0; i < kSums; ++i) {
        if (i / 2 % 2 != h) continue;
        scores[i] = power_of_two(fmaf(scores[i], scale, -highest));
        sum += scores[i];
      }
      sum += __shfl_xor_sync(kAllLanes, sum, 1);
      sum += __shfl_xor_sync(kAllLanes, sum, 2);
      sums[h] = sum;
      statistics[h] = highest + log2f(sum);
    }
  }
};

template <int kWidth, int kKeys>
__global__ void __launch_bounds__(kWarpgroup, ForwardBlock<kWidth, kKeys>::kBlocks)
    attention_forward_kernel(const ForwardArguments arguments) {
  using Block = ForwardBlock<kWidth, kKeys>;
  using Rows = HeadRows<kWidth>;
  constexpr int kRows = Block::kRows;
  TESSERA_ALIGNED_SHARED(memory);
  const AttentionProblem& p = arguments.problem;
  const AttentionHead<kWidth> head(p);
  if (head.tokens == 0) return;
  // The last 64 queries may end in the memory of the keys. The scores of these rows are not used.
  unsigned char* const queries = memory;
  unsigned char* const keys = queries + Block::kPartBytes;
  unsigned char* const values = keys + Block::kPartBytes;
  const std::int64_t stride = 3 * p.heads * kWidth;
  copy_tokens<kWidth, kWarpgroup, kRows>(queries, head.of_part(arguments.qkv, p, 0), stride, head.tokens);
  copy_tokens<kWidth, kWarpgroup, kRows>(keys, head.of_part(arguments.qkv, p, 1), stride, head.tokens);
  commit_copies();
  copy_tokens<kWidth, kWarpgroup, kRows>(values, head.of_part(arguments.qkv, p, 2), stride, head.tokens);
  commit_copies();
  wait_for_tokens<1>();
  const int lane = threadIdx.x % 32;
#pragma unroll 1
  for (int query0 = 0; query0 < head.tokens; query0 += 64) {
    float scores[Block::kSums];
    fence_products(scores);
#pragma unroll
    for (int k = 0; k < Rows::kSteps; ++k) {
      multiply<Depth::kAlongRows, Depth::kAlongRows>(scores, Rows::along(queries, query0, k), Rows::along(keys, 0, k), k > 0);
    }
    commit_products();
    wait_for_products<0>(scores);
    const int query = query0 + threadIdx.x / 32 * 16 + lane / 4;
    float sums[2], statistics[2];
    Block::exponentiate(scores, head, p, query, sums, statistics);
    std::uint32_t weights[Block::kSteps][4];
#pragma unroll
    for (int i = 0; i < 4 * Block::kSteps; ++i) {
      weights[i / 4][i % 4] = 2 * i < Block::kSums ? bfloat16_pair(scores[2 * i], scores[2 * i + 1]) : 0u;
    }
    if (query0 == 0) wait_for_tokens<0>();  // the values
    typename Rows::Sums output;
    fence_products(output, weights);
#pragma unroll
    for (int s = 0; s < Block::kSteps; ++s) {
      multiply<Depth::kAcrossRows>(output, weights[s], Rows::across(values, 0, s), s > 0);
    }
    commit_products();
    wait_for_products<0>(output, weights);
    const float inverse[2] = {1.0f / sums[0], 1.0f / sums[1]};
    store_tokens(output, head.of_output(arguments.output, p), p.heads * kWidth, query0, head.tokens,
                 [&](int i) { return inverse[i / 2 % 2]; });
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = query + 8 * h;
      if (lane % 4 == 0 && row < head.tokens) arguments.statistics[head.head * p.rows + head.first + row] = statistics[h];
    }
  }
}

template <int kWidth, int kKeys>
Status start(const AttentionForward& call, void* stream) {
  const AttentionProblem& p = call.problem;
  const ForwardArguments arguments = {p, static_cast<const Bfloat16*>(call.qkv), static_cast<Bfloat16*>(call.output), call.statistics};
  return launch("attention", attention_forward_kernel<kWidth, kKeys>, dim3(static_cast<unsigned>(p.sequences * p.heads)), kWarpgroup,
                ForwardBlock<kWidth, kKeys>::kBytes, stream, arguments);
}

template <int kWidth>
Status start(const AttentionForward& call, void* stream) {
  switch (attention_configuration(kAttentionForward, call.problem)->tokens) {
    case 56: return start<kWidth, 56>(call, stream);
    case 80: return start<kWidth, 80>(call, stream);
    case 128: return start<kWidth, 128>(call, stream);
    case 200: return start<kWidth, 200>(call, stream);
    default: return start<kWidth, 256>(call, stream);
  }
}

}  // namespace

namespace TESSERA_DEVICE_NAMESPACE {

bool has_attention() {
#if defined(TESSERA_CUDA_EMULATION)
  return true;
#else
  int device = 0, major = 0, minor = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  return major == 9 && minor == 0 && cuda::block_memory(device) >= std::size_t{ForwardBlock<80, kMostAttentionTokens>::kBytes};
#endif
}

Status attention_forward(const AttentionForward& arguments, void* stream) {
  const AttentionProblem& p = arguments.problem;
  if (Status status = check(arguments); !status.ok() || p.sequences == 0 || p.rows == 0) return status;
  return p.head_width == 64 ? start<64>(arguments, stream) : start<80>(arguments, stream);
}

}  // namespace TESSERA_DEVICE_NAMESPACE
}  // namespace tessera::kernels
