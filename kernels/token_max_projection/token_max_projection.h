#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/parallel.h"
#include "kernels/status.h"
#include "kernels/types.h"

/// STAIR's token projection (eq. 4-5) after its transform. It multiplies the token at each position by every row of a
/// table, takes the maximum over positions, and applies log(1 + relu) to it:
///   encoding(b, v) = log(1 + max(0, max over real n of tokens(b, n) . table(v) + bias(v)))
/// `argmax` is the position of the maximum, whether the maximum is positive or negative. If several positions have the
/// maximum, `argmax` is the lowest of them. For a sample without a real position, `argmax` is -1 and the encoding is 0.
/// Products are stored only for one tile of rows and columns at a time, never for all of [B, N, V]. The backward pass
/// adds the rows at the positions of the maxima and computes no products. Padding never affects a result. A NaN product
/// makes its entry of the encoding NaN. Results do not depend on the number of threads and are the same in every run.
namespace tessera::kernels {

struct TokenMaxProjectionProblem {
  std::int64_t batch = 0;       ///< B, may be 0
  std::int64_t positions = 0;   ///< N, at least 1
  std::int64_t vocabulary = 0;  ///< V, at least 1
  std::int64_t width = 0;       ///< w, at least 1
  DataType type = DataType::kFloat32;
  /// On a GPU, for the forward pass: one of token_max_projection_configurations(); null if the kernel chooses.
  const char* configuration = nullptr;
};

/// Returns the names of the instantiations of the forward pass on GPUs: "mma" for all GPUs, and hopper/positions at once for Hopper GPUs.
std::vector<std::string> token_max_projection_configurations();

/// All arrays are contiguous.
struct TokenMaxProjectionForward {
  TokenMaxProjectionProblem problem;
  const void* tokens = nullptr;        ///< [B, N, w]
  const std::uint8_t* mask = nullptr;  ///< [B, N], non-zero for real positions; null if all are real
  const void* table = nullptr;         ///< [V, w]
  const float* bias = nullptr;         ///< [V]
  float* encoding = nullptr;           ///< out [B, V]
  std::int64_t* argmax = nullptr;      ///< out [B, V]
};

struct TokenMaxProjectionBackward {
  TokenMaxProjectionProblem problem;
  const void* tokens = nullptr;
  const void* table = nullptr;
  const std::int64_t* argmax = nullptr;  ///< from the forward pass
  const float* weight = nullptr;         ///< [B, V], gradient of each maximum; 0 where no gradient passes
  void* grad_tokens = nullptr;           ///< out [B, N, w]; null if not needed
  void* grad_table = nullptr;            ///< out [V, w]; null if not needed
};

/// Returns a failure with a one-line message that names the first bad argument.
Status check(const TokenMaxProjectionForward& arguments);
Status check(const TokenMaxProjectionBackward& arguments);

/// The CPU kernels support only float32. The caller passes in its own threads and its library's matrix product.
namespace cpu {
/// Computes c [rows, columns] = a [rows, depth] b [columns, depth]^T, where all matrices are contiguous. Several
/// threads call it at the same time, so it must not start threads of its own.
using MatrixProduct = std::function<void(std::int64_t rows, std::int64_t columns, std::int64_t depth, const float* a,
                                         const float* b, float* c)>;
Status token_max_projection_forward(const TokenMaxProjectionForward& arguments, const MatrixProduct& product,
                                    const Parallel& parallel = {});
Status token_max_projection_backward(const TokenMaxProjectionBackward& arguments, const Parallel& parallel = {});
}  // namespace cpu

/// These functions run on the current device, asynchronously on `stream` (a cudaStream_t). Tokens and table are float32
/// or bfloat16. Sums are float32. A gradient has the same type as its tensor.
namespace cuda {
Status token_max_projection_forward(const TokenMaxProjectionForward& arguments, void* stream);
Status token_max_projection_backward(const TokenMaxProjectionBackward& arguments, void* stream);
}  // namespace cuda
namespace emulation {
Status token_max_projection_forward(const TokenMaxProjectionForward& arguments, void* stream);
Status token_max_projection_backward(const TokenMaxProjectionBackward& arguments, void* stream);
}  // namespace emulation

}  // namespace tessera::kernels
