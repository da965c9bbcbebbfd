#pragma once

#include <cstdint>
#include <functional>

#include "kernels/parallel.h"
#include "kernels/status.h"
#include "kernels/types.h"

/// STAIR's token projection (eq. 4-5) behind its transform: the product of every position with a table of tokens, its
/// maximum over positions, and log(1 + relu) of that.
///   encoding(b, v) = log(1 + max(0, max over real n of tokens(b, n) . table(v) + bias(v)))
/// `argmax` says where the maximum stands, the lowest of equal positions, whatever the maximum's sign; -1 (and encoding
/// 0) in a row without a real position. Products of one tile of rows and columns at a time are there, never [B, N, V].
/// The backward adds rows along the maxima and makes no product. Padding is never read into a result, whatever stands in
/// it. A NaN product makes its entry NaN. Results don't depend on the number of threads and are the same in every run.
namespace tessera::kernels {

struct TokenMaxProjectionProblem {
  std::int64_t batch = 0;       ///< B, may be 0
  std::int64_t positions = 0;   ///< N, at least 1
  std::int64_t vocabulary = 0;  ///< V, at least 1
  std::int64_t width = 0;       ///< w, at least 1
  DataType type = DataType::kFloat32;
};

/// All contiguous.
struct TokenMaxProjectionForward {
  TokenMaxProjectionProblem problem;
  const void* tokens = nullptr;        ///< [B, N, w]
  const std::uint8_t* mask = nullptr;  ///< [B, N], non-zero = real; null: all real
  const void* table = nullptr;         ///< [V, w]
  const float* bias = nullptr;         ///< [V]
  float* encoding = nullptr;           ///< out [B, V]
  std::int64_t* argmax = nullptr;      ///< out [B, V]
};

struct TokenMaxProjectionBackward {
  TokenMaxProjectionProblem problem;
  const void* tokens = nullptr;
  const void* table = nullptr;
  const std::int64_t* argmax = nullptr;  ///< from the forward
  const float* weight = nullptr;         ///< [B, V], gradient of each maximum; 0 where it passes none
  void* grad_tokens = nullptr;           ///< out [B, N, w]; null: not wanted
  void* grad_table = nullptr;            ///< out [V, w]; null: not wanted
};

/// Failure with a line naming the first bad argument.
Status check(const TokenMaxProjectionForward& arguments);
Status check(const TokenMaxProjectionBackward& arguments);

/// float32. The caller hands in its library's matrix product, as it hands in threads.
namespace cpu {
/// c [rows, columns] = a [rows, depth] b [columns, depth]^T, all contiguous. Called by several threads at a time, so it
/// must not start threads of its own.
using MatrixProduct = std::function<void(std::int64_t rows, std::int64_t columns, std::int64_t depth, const float* a,
                                         const float* b, float* c)>;
Status token_max_projection_forward(const TokenMaxProjectionForward& arguments, const MatrixProduct& product,
                                    const Parallel& parallel = {});
Status token_max_projection_backward(const TokenMaxProjectionBackward& arguments, const Parallel& parallel = {});
}  // namespace cpu

/// On the current device, asynchronous on `stream` (a cudaStream_t): tokens and table in float32 or bfloat16, sums in
/// float32. Gradients have the type of what they are the gradient of.
namespace cuda {
Status token_max_projection_forward(const TokenMaxProjectionForward& arguments, void* stream);
Status token_max_projection_backward(const TokenMaxProjectionBackward& arguments, void* stream);
}  // namespace cuda
namespace emulation {
Status token_max_projection_forward(const TokenMaxProjectionForward& arguments, void* stream);
Status token_max_projection_backward(const TokenMaxProjectionBackward& arguments, void* stream);
}  // namespace emulation

}  // namespace tessera::kernels
