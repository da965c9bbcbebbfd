#pragma once

#include <cstdint>
#include <functional>

#include "kernels/parallel.h"
#include "kernels/status.h"
#include "kernels/types.h"

/// STAIR's token projection (eq. 4-5) after its transform: the product of every position with a table of tokens, its
/// maximum over positions, and log(1 + relu) of it.
///   encoding(b, v) = log(1 + max(0, max over real n of tokens(b, n) . table(v) + bias(v)))
/// `argmax` is the position of the maximum, positive or negative, and the lowest of equal positions; it is -1 (and
/// encoding 0) in a row without a real position. Products are stored only for one tile of rows and columns at a time,
/// never [B, N, V]. The backward pass adds rows along the maxima and computes no products. Padding never affects a
/// result. A NaN product makes its entry NaN. Results do not depend on the number of threads and are the same in every
/// run.
namespace tessera::kernels {

struct TokenMaxProjectionProblem {
  std::int64_t batch = 0;       ///< B, may be 0
  std::int64_t positions = 0;   ///< N, at least 1
  std::int64_t vocabulary = 0;  ///< V, at least 1
  std::int64_t width = 0;       ///< w, at least 1
  DataType type = DataType::kFloat32;
};

/// All arrays are contiguous.
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
  const float* weight = nullptr;         ///< [B, V], gradient of each maximum; 0 where none passes
  void* grad_tokens = nullptr;           ///< out [B, N, w]; null: not wanted
  void* grad_table = nullptr;            ///< out [V, w]; null: not wanted
};

/// Returns a failure with one line that names the first bad argument.
Status check(const TokenMaxProjectionForward& arguments);
Status check(const TokenMaxProjectionBackward& arguments);

/// Supports only float32. The caller passes in its library's matrix product, as it passes in threads.
namespace cpu {
/// c [rows, columns] = a [rows, depth] b [columns, depth]^T, all contiguous. Several threads call it concurrently, so
/// it must not start threads of its own.
using MatrixProduct = std::function<void(std::int64_t rows, std::int64_t columns, std::int64_t depth, const float* a,
                                         const float* b, float* c)>;
Status token_max_projection_forward(const TokenMaxProjectionForward& arguments, const MatrixProduct& product,
                                    const Parallel& parallel = {});
Status token_max_projection_backward(const TokenMaxProjectionBackward& arguments, const Parallel& parallel = {});
}  // namespace cpu

/// On the current device, asynchronous on `stream` (a cudaStream_t). Tokens and table are float32 or bfloat16, sums are
/// float32. A gradient has the same type as its tensor.
namespace cuda {
Status token_max_projection_forward(const TokenMaxProjectionForward& arguments, void* stream);
Status token_max_projection_backward(const TokenMaxProjectionBackward& arguments, void* stream);
}  // namespace cuda
namespace emulation {
Status token_max_projection_forward(const TokenMaxProjectionForward& arguments, void* stream);
Status token_max_projection_backward(const TokenMaxProjectionBackward& arguments, void* stream);
}  // namespace emulation

}  // namespace tessera::kernels
