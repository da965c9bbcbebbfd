#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/parallel.h"
#include "kernels/status.h"
#include "kernels/types.h"

/// FILIP's token-wise maximum similarity of every image with every text (eq. 4-5):
///   i2t[b, c] = mean over kept patches p of max over kept tokens r of patches[b, p] . tokens[c, r],
///   t2i[b, c] = mean over kept tokens r of max over kept patches p of the same product.
/// The matrix of all products is never stored. The CPU computes the products of one image and one text at a time, in
/// the core's second-level cache. A GPU keeps them in registers. The forward pass records the position of each maximum;
/// if several products are equal, it records the lowest position. The backward pass adds the rows at these positions;
/// on Hopper GPUs it multiplies all kept rows by weights, which are 0 at other positions. So there, a kept patch or token that is NaN
/// or infinite makes the gradients of all rows of the other side NaN, and elsewhere only of those that have it as their maximum.
/// Patches and tokens that are not kept never affect a result, even if they are NaN. If an image has no kept patch, or
/// a text has no kept token, both similarities of the pair are 0. A NaN or infinite product makes both similarities of
/// its pair NaN. Sums have a fixed order, so results are the same in every run.
namespace tessera::kernels {

struct MaxSimilarityProblem {
  std::int64_t images = 0;             ///< B, may be 0
  std::int64_t patches = 0;            ///< P, from 1 to kMostRows
  std::int64_t texts = 0;              ///< C, may be 0
  std::int64_t tokens = 0;             ///< L, from 0 to kMostRows; on a GPU at most kMostTokensOnGpu
  std::int64_t width = 0;              ///< D, at least 1
  DataType type = DataType::kFloat32;  ///< type of patches, tokens and their gradients; sums are always float32
  /// On a GPU: one of max_similarity_configurations() of the pass; null if the kernel chooses.
  const char* configuration = nullptr;

  /// The position of a maximum. The backward pass needs [B, C, P + L] positions, so using 16 bits instead of 32 halves
  /// their memory.
  using Place = std::int16_t;
  static constexpr std::int64_t kMostRows = 32767;
  static constexpr std::int64_t kMostTokensOnGpu = 1024;
};

/// Returns the names of a pass's instantiations on GPUs. Forward: "mma" for all GPUs, and hopper/tokens, or hopper/tokens x texts at once,
/// for Hopper GPUs. Backward: "gather" for all GPUs, and "hopper".
std::vector<std::string> max_similarity_configurations(Pass pass);

/// All arrays are contiguous.
struct MaxSimilarityForward {
  MaxSimilarityProblem problem;
  const void* patches = nullptr;                      ///< [B, P, D]
  const void* tokens = nullptr;                       ///< [C, L, D]
  const std::uint8_t* patch_keep = nullptr;           ///< [B, P], non-zero = kept
  const std::uint8_t* token_keep = nullptr;           ///< [C, L]
  float* i2t = nullptr;                               ///< out [B, C]
  float* t2i = nullptr;                               ///< out [B, C]
  MaxSimilarityProblem::Place* best_token = nullptr;  ///< out [B, C, P], best token of each patch; 0 if there is none
  MaxSimilarityProblem::Place* best_patch = nullptr;  ///< out [B, C, L], best patch of each token
  void* workspace = nullptr;                          ///< on a GPU: max_similarity_workspace() bytes, aligned to 16 bytes
};

struct MaxSimilarityBackward {
  MaxSimilarityProblem problem;
  const void* patches = nullptr;
  const void* tokens = nullptr;
  const std::uint8_t* patch_keep = nullptr;
  const std::uint8_t* token_keep = nullptr;
  const MaxSimilarityProblem::Place* best_token = nullptr;  ///< from the forward pass
  const MaxSimilarityProblem::Place* best_patch = nullptr;
  const float* grad_i2t = nullptr;  ///< [B, C]
  const float* grad_t2i = nullptr;  ///< [B, C]
  void* grad_patches = nullptr;     ///< out [B, P, D]; null if not needed
  void* grad_tokens = nullptr;      ///< out [C, L, D]; null if not needed
  void* workspace = nullptr;        ///< as in the forward pass
};

/// Returns a failure with a one-line message that names the first bad argument.
Status check(const MaxSimilarityForward& arguments);
Status check(const MaxSimilarityBackward& arguments);

/// The CPU kernels support only float32.
namespace cpu {
Status max_similarity_forward(const MaxSimilarityForward& arguments, const Parallel& parallel = {});
Status max_similarity_backward(const MaxSimilarityBackward& arguments, const Parallel& parallel = {});
}  // namespace cpu

/// These functions run on the current device, asynchronously on `stream` (a cudaStream_t). They use tensor cores.
/// bfloat16 rows are multiplied directly. A float32 row is split into a sum of two bfloat16 rows, so x . y is computed as the sum of three
/// products of bfloat16 rows. This sum differs from x . y by at most 2^-16 |x| |y|. The backward pass on Hopper GPUs treats float32 weights
/// and rows in the same way, and rounds weights to bfloat16 if the rows are bfloat16.
namespace cuda {
std::size_t max_similarity_workspace(const MaxSimilarityProblem& problem, Pass pass);
/// Returns the shared memory that a block of the forward pass needs.
std::size_t max_similarity_block_memory(const MaxSimilarityProblem& problem);
Status max_similarity_forward(const MaxSimilarityForward& arguments, void* stream);
Status max_similarity_backward(const MaxSimilarityBackward& arguments, void* stream);
}  // namespace cuda
namespace emulation {
std::size_t max_similarity_workspace(const MaxSimilarityProblem& problem, Pass pass);
std::size_t max_similarity_block_memory(const MaxSimilarityProblem& problem);
Status max_similarity_forward(const MaxSimilarityForward& arguments, void* stream);
Status max_similarity_backward(const MaxSimilarityBackward& arguments, void* stream);
}  // namespace emulation

}  // namespace tessera::kernels
