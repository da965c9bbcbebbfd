#pragma once

// Every .cu file of kernels/ includes this file first. nvcc compiles these files for the GPU. The host compiler
// compiles them for kernels/emulation, with TESSERA_CUDA_EMULATION defined. `launch` is called in the same way in both
// builds.
#include <cstdint>
#include <string>

#include "kernels/status.h"
#include "kernels/types.h"

#if defined(TESSERA_CUDA_EMULATION)
#include "kernels/emulation/cuda_emulation.h"
#define TESSERA_DEVICE_NAMESPACE emulation
#else
#include <cuda_runtime.h>
#define TESSERA_DEVICE_NAMESPACE cuda
#define TESSERA_DYNAMIC_SHARED(name) extern __shared__ __align__(16) unsigned char name[]
#endif

namespace tessera::kernels {
namespace {

/// The maximum of a grid's first dimension.
constexpr std::int64_t kMostBlocks = 2147483647;

/// Starts `kernel`. Returns a failure, with `operation` in its message, if the runtime rejects the launch.
template <class... Parameters, class... Arguments>
Status launch(const char* operation, void (*kernel)(Parameters...), dim3 grid, unsigned threads,
              std::size_t shared_bytes, void* stream, const Arguments&... arguments) {
#if defined(TESSERA_CUDA_EMULATION)
  (void)operation;
  (void)stream;
  emulation::run(grid, dim3(threads), shared_bytes, [&] { kernel(arguments...); });
  return {};
#else
  cudaError_t error = cudaSuccess;
  if (shared_bytes > 48 * 1024) {
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
  }
  if (error == cudaSuccess) kernel<<<grid, threads, shared_bytes, static_cast<cudaStream_t>(stream)>>>(arguments...);
  error = cudaGetLastError();  // the error of either call; clears it, so that no later launch reports it again
  if (error == cudaSuccess) return {};
  return Status::failure(std::string(operation) + ": " + cudaGetErrorString(error) + " (" + std::to_string(threads) +
                         " threads and " + std::to_string(shared_bytes) + " bytes of shared memory per block)");
#endif
}

}  // namespace
}  // namespace tessera::kernels
