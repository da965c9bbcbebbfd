#pragma once

// Lets the last of several blocks combine what all of them have computed, in an order that does not depend on their speed.
#include <cstring>

#include "kernels/device/words.h"

namespace tessera::kernels {
namespace {

/// Sets `bytes` bytes to 0 on the stream, before later launches. Returns a failure, with `operation` in its message, if the runtime
/// rejects the request.
inline Status clear_bytes(const char* operation, void* memory, std::size_t bytes, void* stream) {
#if defined(TESSERA_CUDA_EMULATION)
  (void)operation;
  (void)stream;
  std::memset(memory, 0, bytes);
  return {};
#else
  if (cudaMemsetAsync(memory, 0, bytes, static_cast<cudaStream_t>(stream)) == cudaSuccess) return {};
  return Status::failure(std::string(operation) + ": " + cudaGetErrorString(cudaGetLastError()));
#endif
}

/// Returns the value at `address`, which another block may have written during this kernel.
__device__ __forceinline__ float load_from_other_block(const float* address) {
#if defined(TESSERA_CUDA_EMULATION)
  return *address;
#else
  return __ldcg(address);
#endif
}

__device__ __forceinline__ Word load_word_from_other_block(const float* address) {
#if defined(TESSERA_CUDA_EMULATION)
  return word_at<Word>(address);
#else
  const uint4 word = __ldcg(reinterpret_cast<const uint4*>(address));
  return {{word.x, word.y, word.z, word.w}};
#endif
}

/// Returns true in the last of `blocks` blocks that call this function with the same counter, which must be 0 before the first call. The
/// last block can then read what all these blocks had written (load_from_other_block). All threads of a block must make the call.
__device__ __forceinline__ bool is_last_block(unsigned* counter, unsigned blocks) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(counter, 1u) + 1 == blocks;
  __syncthreads();
  __threadfence();
  return last;
}

/// Sums that several blocks have computed, in a workspace. Block b writes its sums to partials + b * pitch.
struct BlockSums {
  unsigned* counters;  // [block_sum_counters(blocks)], 0 before the kernel starts
  float* partials;     // at a multiple of 16 bytes
  std::int64_t pitch;  // a multiple of 4
};

constexpr int kBlocksOfGroup = 16;

/// How many counters the sums of so many blocks need.
TESSERA_HOST_DEVICE constexpr std::int64_t block_sum_counters(std::int64_t blocks) {
  return 1 + (blocks + kBlocksOfGroup - 1) / kBlocksOfGroup;
}

/// Adds the sums of all blocks. In the block that is last, each thread calls use(first, totals) for some of the pieces of four totals.
/// The blocks form groups of 16: the last block of a group adds the group's sums, and the last group adds those of all groups, both in the
/// order of the blocks. So many blocks add at the same time, and no block reads the sums of all blocks. All threads of all blocks must make
/// the call, after their block has written `count` sums. Totals past them, in the last piece, are undefined.
template <class Use>
__device__ __forceinline__ void add_block_sums(const BlockSums& sums, int block, int blocks, int count, const Use& use) {
  const int group = block / kBlocksOfGroup, groups = (blocks + kBlocksOfGroup - 1) / kBlocksOfGroup, first = group * kBlocksOfGroup;
  const int members = blocks - first < kBlocksOfGroup ? blocks - first : kBlocksOfGroup;
  const auto add = [&](const float* from, std::int64_t step, int parts, const auto& finish) {
    for (int i = static_cast<int>(threadIdx.x) * 4; i < count; i += static_cast<int>(blockDim.x) * 4) {
      float totals[4] = {};
#pragma unroll 8
      for (int part = 0; part < parts; ++part) {
        const Word word = load_word_from_other_block(from + part * step + i);
#pragma unroll
        for (int k = 0; k < 4; ++k) totals[k] += element<float>(word, k);
      }
      finish(i, totals);
    }
  };
  float* const of_group = sums.partials + first * sums.pitch;
  if (!is_last_block(sums.counters + 1 + group, static_cast<unsigned>(members))) return;
  if (groups == 1) return add(of_group, sums.pitch, members, use);
  add(of_group, sums.pitch, members, [&](int i, const float(&totals)[4]) {
    word_at<Piece<float, 4>>(of_group + i) = Piece<float, 4>{{totals[0], totals[1], totals[2], totals[3]}};
  });
  if (is_last_block(sums.counters, static_cast<unsigned>(groups))) add(sums.partials, kBlocksOfGroup * sums.pitch, groups, use);
}

}  // namespace
}  // namespace tessera::kernels
