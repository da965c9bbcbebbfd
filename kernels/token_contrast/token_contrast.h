#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/status.h"
#include "kernels/types.h"

/// The contrast of tokens within each pair (SPARC, eq. 6; MGCA, eq. 4-6). Row i of the queries matches row i of the keys. With S_ij the
/// cosine of query i and key j, and sums over the real rows of the pair,
///   loss_i = (log sum_j exp(scale (S_ij - S_ii)) + log sum_j exp(scale (S_ji - S_ii))) / 2.
/// A row shorter than 1e-12 is divided by 1e-12 instead of by its length. Padding rows are never read; their losses and gradients are 0.
/// Products are those of the rows before the normalization, with float32 sums; everything else is float32. In the backward pass, the
/// matrix of d loss / d S is rounded to the rows' type. Results are the same in every run.
///
/// The kernels run on a GPU; on the CPU, src/ops/token_contrast.cpp composes the same of LibTorch's operations.
namespace tessera::kernels {

/// A pair has at most this many rows.
inline constexpr std::int64_t kMostContrastTokens = 128;

struct TokenContrastProblem {
  std::int64_t batch = 0;              ///< B, may be 0
  std::int64_t tokens = 0;             ///< L, 1 .. kMostContrastTokens
  std::int64_t width = 0;              ///< D, at least 1; multiples of 8 with aligned rows are fastest
  DataType type = DataType::kFloat32;  ///< type of queries, keys and their gradients
  bool tf32 = false;                   ///< multiply float32 in TensorFloat-32, with one product instead of three
  std::size_t block_memory = 0;        ///< the shared memory that a block may use; 0 for all that it has
};

struct TokenContrastForward {
  TokenContrastProblem problem;
  ConstRows queries, keys;             ///< [B, L, D]
  const std::uint8_t* mask = nullptr;  ///< [B, L] contiguous, non-zero for real rows; null if all are real
  const float* scale = nullptr;        ///< one number, on the device
  float* losses = nullptr;             ///< out [B, L] contiguous
};

struct TokenContrastBackward {
  TokenContrastProblem problem;
  ConstRows queries, keys;
  const std::uint8_t* mask = nullptr;
  const float* scale = nullptr;
  const float* grad_losses = nullptr;  ///< [B, L] contiguous; entries of padding are not read
  Rows grad_queries, grad_keys;        ///< out [B, L, D]
  float* grad_scale = nullptr;         ///< out [B], what each pair adds to the gradient of the scale
};

/// Returns a failure with a one-line message that names the first bad argument.
Status check(const TokenContrastForward& arguments);
Status check(const TokenContrastBackward& arguments);

/// Returns how many bytes of shared memory a block needs at least, for both passes. With more, it is faster.
std::size_t token_contrast_block_memory(std::int64_t tokens, DataType type);

/// These functions run on the current device, asynchronously on `stream` (a cudaStream_t).
namespace cuda {
Status token_contrast_forward(const TokenContrastForward& arguments, void* stream);
Status token_contrast_backward(const TokenContrastBackward& arguments, void* stream);
}  // namespace cuda
namespace emulation {
Status token_contrast_forward(const TokenContrastForward& arguments, void* stream);
Status token_contrast_backward(const TokenContrastBackward& arguments, void* stream);
}  // namespace emulation

}  // namespace tessera::kernels
