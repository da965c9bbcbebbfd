#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/parallel.h"
#include "kernels/status.h"
#include "kernels/types.h"

/// STAIR's FLOPs regularizer (eq. 6), loss = sum_k (mean_i encoding_ik)^2 over an encoding [N, V], in one pass over the
/// encoding. The gradient of an entry is grad_loss * 2 / N * mean_k, the same in every row. Sums are float32 or better.
/// Results do not depend on the number of threads and are the same in every run.
namespace tessera::kernels {

/// Computes column_sum, for a regularizer over the rows of several processes, or column_mean and loss, or all three.
struct FlopsForward {
  std::int64_t rows = 0;     ///< N; may be 0 if only column_sum is wanted
  std::int64_t columns = 0;  ///< V, at least 1
  DataType type = DataType::kFloat32;
  const void* encoding = nullptr;  ///< [N, V], each row contiguous
  std::int64_t row_stride = 0;     ///< in elements
  float* column_sum = nullptr;     ///< out [V], or null
  float* column_mean = nullptr;    ///< out [V], or null
  float* loss = nullptr;           ///< out, one value; null if column_mean is
  void* workspace = nullptr;       ///< flops_workspace() bytes at a multiple of 16; unused on the CPU
};

struct FlopsBackward {
  std::int64_t rows = 0;     ///< N
  std::int64_t columns = 0;  ///< V
  DataType type = DataType::kFloat32;
  const float* column_mean = nullptr;  ///< [V]
  const float* grad_loss = nullptr;    ///< one value, in the same memory as the arrays (host or device)
  void* grad_encoding = nullptr;       ///< out [written_rows, V]
  std::int64_t written_rows = 0;       ///< 1 if the caller broadcasts this row to all N rows, else N
  std::int64_t row_stride = 0;
};

/// Returns a failure with a one-line message that names the first bad argument.
Status check(const FlopsForward& arguments);
Status check(const FlopsBackward& arguments);

namespace cpu {
Status flops_forward(const FlopsForward& arguments, const Parallel& parallel = {});
Status flops_backward(const FlopsBackward& arguments, const Parallel& parallel = {});
}  // namespace cpu

/// These functions run on the current device, asynchronously on `stream` (a cudaStream_t). The size of the workspace
/// depends only on the shape, the stride and the type.
namespace cuda {
std::size_t flops_workspace(const FlopsForward& arguments);
Status flops_forward(const FlopsForward& arguments, void* stream);
Status flops_backward(const FlopsBackward& arguments, void* stream);
}  // namespace cuda
namespace emulation {
std::size_t flops_workspace(const FlopsForward& arguments);
Status flops_forward(const FlopsForward& arguments, void* stream);
Status flops_backward(const FlopsBackward& arguments, void* stream);
}  // namespace emulation

}  // namespace tessera::kernels
