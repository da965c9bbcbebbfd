#pragma once

// What the two sources of the backward pass share.
#include "kernels/max_similarity/configurations.h"

namespace tessera::kernels {

// The kernels for Hopper GPUs. takes_hopper_gradients() is true for the problem.
namespace cuda {
Status max_similarity_backward_hopper(const MaxSimilarityBackward& given, void* stream);
}  // namespace cuda
namespace emulation {
Status max_similarity_backward_hopper(const MaxSimilarityBackward& given, void* stream);
}  // namespace emulation

}  // namespace tessera::kernels
