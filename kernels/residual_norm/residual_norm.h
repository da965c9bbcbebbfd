#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/status.h"
#include "kernels/types.h"

/// Adds an update to a residual stream and normalizes the sum, in one pass over the rows:
///   sum = x + row_factor * column_scale * update, output = LayerNorm(sum) = (sum - mean) * rstd * weight + bias
/// The row factor is that of stochastic depth, the column scale is LayerScale. Either may be missing, and so may the update (then sum = x)
/// or the norm (then only the sum is computed). Arithmetic is float32; a bfloat16 stream is rounded before it is normalized. All matrices
/// are [rows, width], contiguous. Sums over rows are added in an order that depends only on the shape, so results are the same in every run.
///
/// The kernels run on a GPU; on the CPU, src/ops/residual_norm.cpp composes the same of LibTorch's operations.
namespace tessera::kernels {

/// Rows are at most this wide.
inline constexpr std::int64_t kMostNormWidth = 8192;

/// The shape and the types of a call. Supported combinations of (stream, update, output): (float32, float32, float32), (float32, bfloat16,
/// bfloat16), (float32, bfloat16, float32), (bfloat16, bfloat16, bfloat16), (bfloat16, bfloat16, float32).
struct ResidualNormProblem {
  std::int64_t rows = 0;   ///< may be 0
  std::int64_t width = 0;  ///< 1 .. kMostNormWidth
  DataType stream = DataType::kFloat32;  ///< type of x, of the sum, and of their gradients
  DataType update = DataType::kFloat32;  ///< type of the update and of its gradient
  DataType output = DataType::kFloat32;  ///< type of the output and of its gradient
  /// Row r has the factor row_factor[r / rows_per_factor].
  const float* row_factor = nullptr;  ///< null: 1
  std::int64_t rows_per_factor = 1;
  const float* column_scale = nullptr;  ///< [width]; null: 1
  const float* weight = nullptr;        ///< [width]; null: there is no norm
};

struct ResidualNormForward {
  ResidualNormProblem problem;
  const void* x = nullptr;
  const void* update = nullptr;  ///< null: nothing is added
  const float* bias = nullptr;   ///< [width], if there is a norm
  float epsilon = 0.0f;
  void* sum = nullptr;     ///< out; unused without an update
  void* output = nullptr;  ///< out, if there is a norm
  float* mean = nullptr;   ///< out [rows], if there is a norm
  float* rstd = nullptr;   ///< out [rows], if there is a norm
};

/// Gradients. A null output is not computed.
struct ResidualNormBackward {
  ResidualNormProblem problem;
  const void* sum = nullptr;          ///< the forward pass's sum, or x if there was no update; if there is a norm
  const float* mean = nullptr;        ///< [rows], if there is a norm
  const float* rstd = nullptr;        ///< [rows], if there is a norm
  const void* update = nullptr;       ///< needed for grad_column_scale
  const void* grad_sum = nullptr;     ///< the gradient that reaches the sum elsewhere; null: none
  const void* grad_output = nullptr;  ///< if there is a norm
  void* grad_x = nullptr;             ///< out: the gradient of x, which is that of the whole sum
  void* grad_update = nullptr;        ///< out: row_factor * column_scale * grad_x
  float* grad_weight = nullptr;       ///< out [width], if there is a norm
  float* grad_bias = nullptr;         ///< out [width], if there is a norm
  /// out [width]: sum over rows of the update's gradient, which is the gradient of the bias of the linear map that made the update
  float* grad_update_bias = nullptr;
  float* grad_column_scale = nullptr;  ///< out [width]
  void* workspace = nullptr;           ///< residual_norm_workspace() bytes
};

/// Returns a failure with a one-line message that names the first bad argument.
Status check(const ResidualNormForward& arguments);
Status check(const ResidualNormBackward& arguments);

/// These functions run on the current device, asynchronously on `stream` (a cudaStream_t). The workspace is for the backward pass.
namespace cuda {
std::size_t residual_norm_workspace(std::int64_t rows, std::int64_t width);
Status residual_norm_forward(const ResidualNormForward& arguments, void* stream);
Status residual_norm_backward(const ResidualNormBackward& arguments, void* stream);
}  // namespace cuda
namespace emulation {
std::size_t residual_norm_workspace(std::int64_t rows, std::int64_t width);
Status residual_norm_forward(const ResidualNormForward& arguments, void* stream);
Status residual_norm_backward(const ResidualNormBackward& arguments, void* stream);
}  // namespace emulation

}  // namespace tessera::kernels
