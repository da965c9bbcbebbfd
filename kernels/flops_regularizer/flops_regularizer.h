#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/parallel.h"
#include "kernels/status.h"
#include "kernels/types.h"

/// STAIR's FLOPs regularizer (eq. 6), loss = sum_k (mean_i encoding_ik)^2 over an encoding [N, V], in one pass over the
/// encoding. The gradient of an entry is grad_loss * 2 / N * mean_k. Sums are float32 or better. Results do not depend
/// on the number of threads and are the same in every run.
namespace tessera::kernels {

struct FlopsColumnSums {
  std::int64_t rows = 0;     ///< N; may be 0
  std::int64_t columns = 0;  ///< V, at least 1
  DataType type = DataType::kFloat32;
  const void* encoding = nullptr;  ///< [N, V], each row contiguous
  std::int64_t row_stride = 0;     ///< in elements
  float* column_sum = nullptr;     ///< out [V]
  void* workspace = nullptr;       ///< flops_workspace() bytes; unused on the CPU
};

struct FlopsFromSums {
  std::int64_t rows = 0;  ///< N, at least 1
  std::int64_t columns = 0;
  const float* column_sum = nullptr;  ///< [V]
  float* column_mean = nullptr;       ///< out [V]; may be column_sum
  float* loss = nullptr;              ///< out, one value
  void* workspace = nullptr;          ///< flops_workspace() bytes; unused on the CPU
};

struct FlopsBackward {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  DataType type = DataType::kFloat32;
  const float* column_mean = nullptr;  ///< [V]
  const float* grad_loss = nullptr;    ///< one value, in the same memory as the arrays (host or device)
  void* grad_encoding = nullptr;       ///< out [N, V]
  std::int64_t row_stride = 0;
};

/// Returns a failure with a one-line message that names the first bad argument.
Status check(const FlopsColumnSums& arguments);
Status check(const FlopsFromSums& arguments);
Status check(const FlopsBackward& arguments);

namespace cpu {
Status flops_column_sums(const FlopsColumnSums& arguments, const Parallel& parallel = {});
Status flops_from_sums(const FlopsFromSums& arguments);
Status flops_backward(const FlopsBackward& arguments, const Parallel& parallel = {});
}  // namespace cpu

/// These functions run on the current device, asynchronously on `stream` (a cudaStream_t). Both forward calls can use
/// the same workspace.
namespace cuda {
std::size_t flops_workspace(std::int64_t rows, std::int64_t columns);
Status flops_column_sums(const FlopsColumnSums& arguments, void* stream);
Status flops_from_sums(const FlopsFromSums& arguments, void* stream);
Status flops_backward(const FlopsBackward& arguments, void* stream);
}  // namespace cuda
namespace emulation {
std::size_t flops_workspace(std::int64_t rows, std::int64_t columns);
Status flops_column_sums(const FlopsColumnSums& arguments, void* stream);
Status flops_from_sums(const FlopsFromSums& arguments, void* stream);
Status flops_backward(const FlopsBackward& arguments, void* stream);
}  // namespace emulation

}  // namespace tessera::kernels
