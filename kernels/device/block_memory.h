#pragma once

#include <cstddef>

namespace tessera::kernels::cuda {

/// Returns how many bytes of shared memory a block may use on the GPU `device`. Returns 0 if the kernels cannot run on this GPU, because
/// this build has no code for it or because the driver is too old for the CUDA runtime of this build.
std::size_t block_memory(int device);

}  // namespace tessera::kernels::cuda
