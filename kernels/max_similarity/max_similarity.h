#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/parallel.h"
#include "kernels/status.h"

/// FILIP's token-wise maximum similarity of every image with every text (eq. 4-5), float32 on the CPU:
///   i2t[b, c] = mean over kept patches p of max over kept tokens r of patches[b, p] . tokens[c, r],
///   t2i[b, c] = mean over kept tokens r of max over kept patches p of the same product.
/// Products are made for one image and one text at a time and stay in the core's second-level cache. The forward notes
/// where each maximum stands, the lowest index among equals; the backward adds rows along these places and makes no
/// product. Patches and tokens that are not kept are never read, whatever stands in them. A text without kept tokens
/// has similarity 0 with every image. A NaN or infinite product makes both similarities of its pair NaN.
namespace tessera::kernels {

struct MaxSimilarityProblem {
  std::int64_t images = 0;   ///< B, may be 0
  std::int64_t patches = 0;  ///< P, at least 1
  std::int64_t texts = 0;    ///< C, may be 0
  std::int64_t tokens = 0;   ///< L, may be 0
  std::int64_t width = 0;    ///< D, at least 1
};

/// All contiguous.
struct MaxSimilarityForward {
  MaxSimilarityProblem problem;
  const float* patches = nullptr;            ///< [B, P, D]
  const float* tokens = nullptr;             ///< [C, L, D]
  const std::uint8_t* patch_keep = nullptr;  ///< [B, P], non-zero = kept
  const std::uint8_t* token_keep = nullptr;  ///< [C, L]
  float* i2t = nullptr;                      ///< out [B, C]
  float* t2i = nullptr;                      ///< out [B, C]
  std::int32_t* best_token = nullptr;        ///< out [B, C, P], of each patch; 0 where there is none
  std::int32_t* best_patch = nullptr;        ///< out [B, C, L], of each token
};

struct MaxSimilarityBackward {
  MaxSimilarityProblem problem;
  const float* patches = nullptr;
  const float* tokens = nullptr;
  const std::uint8_t* patch_keep = nullptr;
  const std::uint8_t* token_keep = nullptr;
  const std::int32_t* best_token = nullptr;  ///< from the forward
  const std::int32_t* best_patch = nullptr;
  const float* grad_i2t = nullptr;  ///< [B, C]
  const float* grad_t2i = nullptr;  ///< [B, C]
  float* grad_patches = nullptr;    ///< out [B, P, D]; null: not wanted
  float* grad_tokens = nullptr;     ///< out [C, L, D]; null: not wanted
};

/// Failure with a line naming the first bad argument.
Status check(const MaxSimilarityForward& arguments);
Status check(const MaxSimilarityBackward& arguments);

namespace cpu {
Status max_similarity_forward(const MaxSimilarityForward& arguments, const Parallel& parallel = {});
Status max_similarity_backward(const MaxSimilarityBackward& arguments, const Parallel& parallel = {});
}  // namespace cpu

}  // namespace tessera::kernels
