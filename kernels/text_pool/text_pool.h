#pragma once

#include <cstdint>

#include "kernels/parallel.h"
#include "kernels/status.h"

/// The part of text-conditioned pooling (FLAIR, arXiv 2412.03561, section 3.2) between its matrix products, which the
/// caller computes: the softmax over an image's patches and a zero token, that softmax's gradient, and the loss of a
/// pooled vector and the text it was pooled for. Everything is contiguous float32. A NaN makes its row's results NaN.
/// Results do not depend on the number of threads and are the same in every run.
namespace tessera::kernels {

/// weights(r, p) = exp(s(r, p)) / (sum over p of exp(s(r, p)) + z), where z is 1 with a zero token (its score is 0 and
/// its value adds nothing) and 0 without one.
struct PatchSoftmax {
  std::int64_t rows = 0;     ///< may be 0
  std::int64_t patches = 0;  ///< P, at least 1
  bool zero_token = true;
  float* scores = nullptr;   ///< [rows, P], overwritten with the weights
};

/// The scores' gradient from the weights' gradient: g(r, p) <- w(r, p) (g(r, p) - sum over q of w(r, q) g(r, q)).
struct PatchSoftmaxBackward {
  std::int64_t rows = 0;
  std::int64_t patches = 0;
  const float* weights = nullptr;  ///< [rows, P]
  float* gradient = nullptr;       ///< [rows, P], in place
};

/// For pairs of a pooled vector y and its text t, of unit length: z = scale y.t / max(|y|, 1e-12) + bias, and the loss
/// -log sigmoid(label z), 0 for label 0.
struct PooledPairs {
  std::int64_t rows = 0;
  std::int64_t width = 0;                ///< D, at least 1
  float* pooled = nullptr;               ///< [rows, D]; with `gradient`, overwritten with its gradient
  float* text = nullptr;                 ///< [rows, D]; with `gradient`, overwritten with its gradient
  const std::int8_t* labels = nullptr;   ///< [rows], 1, -1 or 0
  const float* scale = nullptr;          ///< one number, on the device
  const float* bias = nullptr;           ///< one number, on the device
  float* losses = nullptr;               ///< out [rows]
  float* of_scale = nullptr;             ///< out [rows], the gradient of the scale; null: not wanted
  float* of_bias = nullptr;              ///< out [rows], the gradient of the bias; null: not wanted
  bool gradient = false;
};

/// Returns a failure with one line that names the first bad argument.
Status check(const PatchSoftmax& arguments);
Status check(const PatchSoftmaxBackward& arguments);
Status check(const PooledPairs& arguments);

namespace cpu {
Status patch_softmax(const PatchSoftmax& arguments, const Parallel& parallel = {});
Status patch_softmax_backward(const PatchSoftmaxBackward& arguments, const Parallel& parallel = {});
Status pooled_pairs(const PooledPairs& arguments, const Parallel& parallel = {});
}  // namespace cpu

/// On the current device, asynchronous on `stream` (a cudaStream_t).
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
