#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "src/models/text_conditioned_scores.h"

namespace tessera::metrics {

/// Scores images against texts, where each text pools the image's tokens in its own way (FLAIR, arXiv 2412.03561). TextConditionedScores
/// defines this conditioned score. Equal texts have exactly equal scores, so that ties are broken by index. All results are on the CPU in
/// double precision.
class ConditionedSimilarity {
 public:
  /// texts: [M, D] floating-point, M at least 1. The pool must outlive this object.
  ConditionedSimilarity(TextConditionedPool& pool, const at::Tensor& texts);

  /// Returns the cosine of image_global [N, D] with each text: [N, M].
  at::Tensor global(const at::Tensor& image_global) const;
  /// Returns the conditioned score of each image with each text: [N, M]. image_tokens: [N, P, D].
  at::Tensor exact(const at::Tensor& image_tokens) const;
  /// Returns the conditioned score of each image with its candidates: the `k` texts with the greatest cosine to image_global [N, D], or all
  /// texts if k is greater than M. At equal cosines, the lower index comes first. The score of a text that is not a candidate is its cosine
  /// minus 4, so these texts rank below all candidates, ordered by cosine.
  at::Tensor among_nearest(const at::Tensor& image_global, const at::Tensor& image_tokens, std::int64_t k) const;
  /// Returns the conditioned score of each patch with each text, where the text pools only this patch and the zero token: [N, P, M].
  at::Tensor of_patches(const at::Tensor& image_tokens) const;
  /// Returns each text's attention to each patch, averaged over the heads: [N, P, M].
  at::Tensor attention(const at::Tensor& image_tokens) const;

 private:
  at::Tensor of_all(const at::Tensor& distinct) const;

  struct Distinct {
    at::Tensor rows, place;  // the distinct texts, and the index of each text [M] among them, int64
  };
  static Distinct distinct_rows(const at::Tensor& texts);

  at::Tensor texts_;  // [M, D]
  Distinct distinct_;
  TextConditionedScores scores_;
};

}  // namespace tessera::metrics
