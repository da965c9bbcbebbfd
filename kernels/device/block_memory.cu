#include "kernels/device/block_memory.h"

#include <map>
#include <mutex>

#include <cuda_runtime.h>

namespace tessera::kernels::cuda {
namespace {

// Stands for all kernels, which are compiled for the same GPUs.
__global__ void probe() {}

std::size_t ask(int device) {
  int current = 0, bytes = 0;
  cudaFuncAttributes attributes;
  const bool runs = cudaGetDevice(&current) == cudaSuccess && cudaSetDevice(device) == cudaSuccess &&
                    cudaFuncGetAttributes(&attributes, probe) == cudaSuccess &&
                    cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) == cudaSuccess;
  cudaSetDevice(current);
  cudaGetLastError();  // a later launch must not report a failure of these calls
  return runs ? static_cast<std::size_t>(bytes) : 0;
}

}  // namespace

std::size_t block_memory(int device) {
  static std::mutex mutex;
  static std::map<int, std::size_t> known;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = known.find(device);
  return found != known.end() ? found->second : known[device] = ask(device);
}

}  // namespace tessera::kernels::cuda
