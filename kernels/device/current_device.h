#pragma once

#include "kernels/device/block_memory.h"
#include "kernels/device/launch.h"
#include "kernels/device/tuning.h"

namespace tessera::kernels {
namespace {

/// The GPU that the calling thread uses; in the emulation, one with the memory of an H100.
inline TunedDevice current_device() {
#if defined(TESSERA_CUDA_EMULATION)
  return {90, 227 * 1024};
#else
  int device = 0, major = 0, minor = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  return {10 * major + minor, cuda::block_memory(device)};
#endif
}

/// The number of blocks of a launch in which each block has a multiprocessor to itself and processes one of `items` after another. (Two in
/// the emulation, so that blocks process several items there, too.)
inline unsigned persistent_blocks(std::int64_t items) {
  int count = 2;
#if !defined(TESSERA_CUDA_EMULATION)
  int device = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
#endif
  return static_cast<unsigned>(items < count ? items : count);
}

}  // namespace
}  // namespace tessera::kernels
