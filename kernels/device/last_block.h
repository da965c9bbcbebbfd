#pragma once

// Lets the last of several blocks combine what all of them have computed, in an order that does not depend on their speed.
#include <cstring>

#include "kernels/device/primitives.h"

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

}  // namespace
}  // namespace tessera::kernels
