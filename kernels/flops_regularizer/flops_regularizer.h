#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/parallel.h"
#include "kernels/status.h"
#include "kernels/types.h"

/// STAIR's FLOPs regularizer (eq. 6): loss = sum_k (mean_i encoding_ik)^2 over an encoding [N, V], in one pass over it.
/// Gradient of an entry: grad_loss * 2 / N * mean_k. Sums are float32 or better; results do not depend on the number of
/// threads and are the same in every run. Over several ranks: column_sums of each rank's rows, a sum over ranks, then
/// from_sums with the number of rows of all ranks; the backward pass of each rank's rows uses the same total.
namespace tessera::kernels {

struct FlopsColumnSums {
  std::int64_t rows = 0;     ///< N, may be 0 (a rank without rows)
  std::int64_t columns = 0;  ///< V, at least 1
  DataType type = DataType::kFloat32;
  const void* encoding = nullptr;  ///< [N, V], rows contiguous
  std::int64_t row_stride = 0;     ///< elements
  float* column_sum = nullptr;     ///< out [V]
  void* workspace = nullptr;       ///< flops_workspace() bytes; unused on the CPU
};

struct FlopsFromSums {
  std::int64_t total_rows = 0;  ///< N over all ranks, at least 1
  std::int64_t columns = 0;
  const float* column_sum = nullptr;  ///< [V], summed over ranks
  float* column_mean = nullptr;       ///< out [V]; may be column_sum
  float* loss = nullptr;              ///< out, one value
  void* workspace = nullptr;          ///< flops_workspace() bytes; unused on the CPU
};

struct FlopsBackward {
  std::int64_t rows = 0;
  std::int64_t total_rows = 0;
  std::int64_t columns = 0;
  DataType type = DataType::kFloat32;
  const float* column_mean = nullptr;  ///< [V]
  const float* grad_loss = nullptr;    ///< one value, where the other pointers are (host or device)
  void* grad_encoding = nullptr;       ///< out [N, V]
  std::int64_t row_stride = 0;
};

/// Returns a failure with one line that names the first bad argument.
Status check(const FlopsColumnSums& arguments);
Status check(const FlopsFromSums& arguments);
Status check(const FlopsBackward& arguments);

namespace cpu {
Status flops_column_sums(const FlopsColumnSums& arguments, const Parallel& parallel = {});
Status flops_from_sums(const FlopsFromSums& arguments);
Status flops_backward(const FlopsBackward& arguments, const Parallel& parallel = {});
}  // namespace cpu

/// On the current device, asynchronous on `stream` (a cudaStream_t). One workspace serves both forward calls.
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
