#pragma once

#include <cstdint>

#include "kernels/parallel.h"
#include "kernels/status.h"

/// What text-conditioned pooling (FLAIR, arXiv 2412.03561, section 3.2) computes between its matrix products. The caller
/// computes the matrix products. There are three functions: the softmax over an image's patches and a zero token, the
/// gradient of this softmax, and the loss of a pooled vector with the text that it was pooled for. All arrays are
/// contiguous float32. A NaN makes its row's results NaN. Results do not depend on the number of threads and are the
/// same in every run.
namespace tessera::kernels {

/// Computes weights(r, p) = exp(s(r, p)) / (sum over p of exp(s(r, p)) + z). With a zero token, whose score is 0 and
/// whose value adds nothing, z is 1. Without one, z is 0.
struct PatchSoftmax {
  std::int64_t rows = 0;     ///< may be 0
  std::int64_t patches = 0;  ///< P, at least 1
  bool zero_token = true;
  float* scores = nullptr;   ///< [rows, P], overwritten with the weights
};

/// Replaces the gradient of the weights by the gradient of the scores:
///   g(r, p) <- w(r, p) (g(r, p) - sum over q of w(r, q) g(r, q))
struct PatchSoftmaxBackward {
  std::int64_t rows = 0;
  std::int64_t patches = 0;
  const float* weights = nullptr;  ///< [rows, P]
  float* gradient = nullptr;       ///< [rows, P], in place
};

/// Computes the losses of pairs (y, t). y is a pooled vector, and t is the embedding of a text, with |t| = 1. The loss is
/// -log sigmoid(label z) with z = scale y.t / max(|y|, 1e-12) + bias. A pair with label 0 has loss 0.
struct PooledPairs {
  std::int64_t rows = 0;
  std::int64_t width = 0;                ///< D, at least 1
  float* pooled = nullptr;               ///< [rows, D]; with `gradient`, overwritten with its gradient
  float* text = nullptr;                 ///< [rows, D]; with `gradient`, overwritten with its gradient
  const std::int8_t* labels = nullptr;   ///< [rows], 1, -1 or 0
  const float* scale = nullptr;          ///< one number, on the device
  const float* bias = nullptr;           ///< one number, on the device
  float* losses = nullptr;               ///< out [rows]
  float* of_scale = nullptr;             ///< out [rows], the gradient of the scale; null if not needed
  float* of_bias = nullptr;              ///< out [rows], the gradient of the bias; null if not needed
  bool gradient = false;
};

/// Returns a failure with a one-line message that names the first bad argument.
Status check(const PatchSoftmax& arguments);
Status check(const PatchSoftmaxBackward& arguments);
Status check(const PooledPairs& arguments);

namespace cpu {
Status patch_softmax(const PatchSoftmax& arguments, const Parallel& parallel = {});
Status patch_softmax_backward(const PatchSoftmaxBackward& arguments, const Parallel& parallel = {});
Status pooled_pairs(const PooledPairs& arguments, const Parallel& parallel = {});
}  // namespace cpu

/// These functions run on the current device, asynchronously on `stream` (a cudaStream_t).
namespace cuda {
Status patch_softmax(const PatchSoftmax& arguments, void* stream);
Status patch_softmax_backward(const PatchSoftmaxBackward& arguments, void* stream);
Status pooled_pairs(const PooledPairs& arguments, void* stream);
}  // namespace cuda
namespace emulation {
Status patch_softmax(const PatchSoftmax& arguments, void* stream);
Status patch_softmax_backward(const PatchSoftmaxBackward& arguments, void* stream);
Status pooled_pairs(const PooledPairs& arguments, void* stream);
}  // namespace emulation

}  // namespace tessera::kernels
