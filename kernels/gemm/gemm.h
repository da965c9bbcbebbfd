#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/activation/activation.h"
#include "kernels/status.h"

/// The products of a linear map y = x weight^T + bias in bfloat16 on a GPU, each with what follows it in the same launch. All matrices are
/// contiguous, at multiples of 16 bytes; x is [rows, in], weight [out, in], y [rows, out]. Sums are float32. cuBLASLt computes the
/// products; if the build has CUTLASS (TESSERA_WITH_CUTLASS), its kernels for sm_90a compute those with an activation.
///
/// src/ops/linear_map.h has the same products of tensors, for all devices and types.
namespace tessera::kernels {

enum class GemmKind {
  kForward,         ///< result = y, or activation(y) with y stored in `before`
  kInputGradient,   ///< result = grad_y weight, or this times activation'(before), with its sums over rows in bias_gradient [in], float32
  kWeightGradient,  ///< result = grad_y^T x, with the sums of grad_y over rows in bias_gradient [out]
};

/// What a product computes, by which callers choose an algorithm.
struct GemmProblem {
  GemmKind kind = GemmKind::kForward;
  std::int64_t rows = 0, in = 0, out = 0;      ///< at least 1; in and out are multiples of 8
  DataType result = DataType::kBfloat16;       ///< of a weight gradient and its bias gradient; otherwise bfloat16
  bool bias = false;                           ///< whether there is a bias or a bias gradient
  bool activated = false;                      ///< not for weight gradients
  Activation activation = Activation::kGelu;   ///< if activated
  bool accumulate = false;                     ///< adds the product to `result`; without a bias and an activation
};

struct GemmCall {
  GemmProblem problem;
  const void* x = nullptr;       ///< forward and weight gradient
  const void* weight = nullptr;  ///< forward and input gradient
  const void* grad_y = nullptr;  ///< the gradients
  const void* bias = nullptr;    ///< [out], bfloat16; forward
  void* before = nullptr;        ///< [rows, out] out in forward, [rows, in] in the input gradient; bfloat16, if activated
  void* result = nullptr;        ///< out
  void* bias_gradient = nullptr;  ///< out; of a weight gradient: of the result's type
  void* workspace = nullptr;      ///< gemm_workspace() bytes
  std::string algorithm = {};     ///< a name that gemm_algorithms() lists
};

/// Returns a failure with a one-line message that names the first bad argument.
Status check(const GemmCall& call);

/// These functions are about the current device.
namespace cuda {
/// Returns whether this build has CUDA, and this process has loaded cuBLASLt.
bool has_gemm();
/// Returns the names of the algorithms that can compute the product, best first by the library's estimate, at most 8. There may be none.
std::vector<std::string> gemm_algorithms(const GemmProblem& problem);
std::size_t gemm_workspace();
/// Runs asynchronously on `stream` (a cudaStream_t). Fails if the algorithm cannot compute the product.
Status gemm(const GemmCall& call, void* stream);
}  // namespace cuda

}  // namespace tessera::kernels
