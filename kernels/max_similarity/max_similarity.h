#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/parallel.h"
#include "kernels/status.h"
#include "kernels/types.h"

/// FILIP's token-wise maximum similarity of every image with every text (eq. 4-5):
///   i2t[b, c] = mean over kept patches p of max over kept tokens r of patches[b, p] . tokens[c, r],
///   t2i[b, c] = mean over kept tokens r of max over kept patches p of the same product.
/// The matrix of products is never stored as a whole: the CPU computes it for one image and one text at a time, in the
/// core's second-level cache; a GPU keeps it in registers. The forward pass records the position of each maximum, the
/// lowest index among equal ones; the backward pass adds rows along these positions and computes no products. Patches
/// and tokens that are not kept never affect a result, even if they are NaN. If one side keeps nothing, both
/// similarities are 0. A NaN or infinite product makes both similarities of its pair NaN. Sums have a fixed order, so
/// results are the same in every run.
namespace tessera::kernels {

struct MaxSimilarityProblem {
  std::int64_t images = 0;             ///< B, may be 0
  std::int64_t patches = 0;            ///< P, from 1 to kMostRows
  std::int64_t texts = 0;              ///< C, may be 0
  std::int64_t tokens = 0;             ///< L, from 0 to kMostRows; on a GPU at most kMostTokensOnGpu
  std::int64_t width = 0;              ///< D, at least 1
  DataType type = DataType::kFloat32;  ///< type of patches, tokens and their gradients; sums are always float32

  /// The position of a maximum. 16 bits halve the memory kept for the backward pass: [B, C, P + L] positions.
  using Place = std::int16_t;
  static constexpr std::int64_t kMostRows = 32767;
  static constexpr std::int64_t kMostTokensOnGpu = 1024;
};

/// All arrays are contiguous.
struct MaxSimilarityForward {
  MaxSimilarityProblem problem;
  const void* patches = nullptr;                      ///< [B, P, D]
  const void* tokens = nullptr;                       ///< [C, L, D]
  const std::uint8_t* patch_keep = nullptr;           ///< [B, P], non-zero = kept
  const std::uint8_t* token_keep = nullptr;           ///< [C, L]
  float* i2t = nullptr;                               ///< out [B, C]
  float* t2i = nullptr;                               ///< out [B, C]
  MaxSimilarityProblem::Place* best_token = nullptr;  ///< out [B, C, P], for each patch; 0 where there is none
  MaxSimilarityProblem::Place* best_patch = nullptr;  ///< out [B, C, L], for each token
  void* workspace = nullptr;                          ///< on a GPU max_similarity_workspace() bytes, aligned to 16
};

struct MaxSimilarityBackward {
  MaxSimilarityProblem problem;
  const void* patches = nullptr;
  const void* tokens = nullptr;
  const std::uint8_t* patch_keep = nullptr;
  const std::uint8_t* token_keep = nullptr;
  const MaxSimilarityProblem::Place* best_token = nullptr;  ///< from the forward
  const MaxSimilarityProblem::Place* best_patch = nullptr;
  const float* grad_i2t = nullptr;  ///< [B, C]
  const float* grad_t2i = nullptr;  ///< [B, C]
  void* grad_patches = nullptr;     ///< out [B, P, D]; null: not wanted
  void* grad_tokens = nullptr;      ///< out [C, L, D]; null: not wanted
  void* workspace = nullptr;        ///< as in the forward pass
};

/// Returns a failure with one line that names the first bad argument.
Status check(const MaxSimilarityForward& arguments);
Status check(const MaxSimilarityBackward& arguments);

/// Supports only float32.
namespace cpu {
Status max_similarity_forward(const MaxSimilarityForward& arguments, const Parallel& parallel = {});
Status max_similarity_backward(const MaxSimilarityBackward& arguments, const Parallel& parallel = {});
}  // namespace cpu

/// On the current device, asynchronous on `stream` (a cudaStream_t). Uses tensor cores: bfloat16 rows directly, float32
/// rows as sums of two bfloat16 numbers; their three products are within 2^-16 |x| |y| of x . y.
namespace cuda {
std::size_t max_similarity_workspace(const MaxSimilarityProblem& problem, Pass pass);
Status max_similarity_forward(const MaxSimilarityForward& arguments, void* stream);
Status max_similarity_backward(const MaxSimilarityBackward& arguments, void* stream);
}  // namespace cuda
namespace emulation {
std::size_t max_similarity_workspace(const MaxSimilarityProblem& problem, Pass pass);
Status max_similarity_forward(const MaxSimilarityForward& arguments, void* stream);
Status max_similarity_backward(const MaxSimilarityBackward& arguments, void* stream);
}  // namespace emulation

}  // namespace tessera::kernels
