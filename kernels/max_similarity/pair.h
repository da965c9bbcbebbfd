#pragma once

#include "kernels/max_similarity/max_similarity.h"

namespace tessera::kernels {

/// An image's kept patches, packed for products with many texts.
struct PackedImage {
  std::int64_t width;
  const float* patches;      ///< [P, D]
  const std::int32_t* kept;  ///< indices of the kept patches
  std::int64_t kept_count;   ///< at least 1
  float* panels;             ///< panel_floats() floats
};

/// The arguments of the forward pass for one image and one text.
struct PairForward {
  const PackedImage* image;
  const float* tokens;       ///< [L, D]
  const std::int32_t* kept;  ///< indices of the kept tokens
  std::int64_t kept_count;   ///< at least 1
  float* i2t;
  float* t2i;
  MaxSimilarityProblem::Place* best_token;  ///< [P]
  MaxSimilarityProblem::Place* best_patch;  ///< [L]
  float* scratch;                           ///< pair_floats() floats
};

/// The arguments of the backward pass for one image and one text. It computes the gradient of one side's rows (the
/// "own" rows) from the other side's rows (the "other" rows).
struct PairGradient {
  std::int64_t width;
  float* gradient;      ///< [own rows, D], to which the gradient is added
  const float* others;  ///< [other rows, D]
  const std::int32_t* own_kept;
  std::int64_t own_count;
  const std::int32_t* other_kept;
  std::int64_t other_count;
  const MaxSimilarityProblem::Place* best_other;  ///< for each own row
  const MaxSimilarityProblem::Place* best_own;    ///< for each other row
  float own_weight;                               ///< gradient of each own row's maximum
  float other_weight;
};

/// The inner loops of max_similarity, compiled for one instruction set.
struct PairKernels {
  std::int64_t (*panel_floats)(const MaxSimilarityProblem& problem);
  std::int64_t (*pair_floats)(const MaxSimilarityProblem& problem);
  void (*pack)(const PackedImage& image);
  void (*forward)(const PairForward& pair);
  void (*backward)(const PairGradient& pair);
};

extern const PairKernels kPortablePairKernels;
#if defined(TESSERA_X86_KERNELS)
extern const PairKernels kAvx2PairKernels;
extern const PairKernels kAvx512PairKernels;
#endif

}  // namespace tessera::kernels
