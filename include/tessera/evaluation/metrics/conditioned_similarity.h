#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include <tessera/models/text_conditioned_scores.h>

namespace tessera::metrics {

/// Similarities of images with texts by what each text finds in an image (FLAIR, arXiv 2412.03561): the conditioned score is
/// that of TextConditionedScores. Equal texts have equal scores, so that ties go by index. Everything is returned on the
/// CPU in double.
class ConditionedSimilarity {
 public:
  /// texts [M, D] floating, M above 0; the pool outlives this.
  ConditionedSimilarity(TextConditionedPool& pool, const at::Tensor& texts);

  /// The cosine of image_global [N, D] with each text: [N, M].
  at::Tensor global(const at::Tensor& image_global) const;
  /// The conditioned score of each image with each text: image_tokens [N, P, D]; returns [N, M].
  at::Tensor exact(const at::Tensor& image_tokens) const;
  /// The same for the `k` texts of an image with the greatest cosine to image_global [N, D] (the lower index first among
  /// equals; all if k is greater than M). The others have that cosine less 4, which is below every candidate and keeps their
  /// order.
  at::Tensor among_nearest(const at::Tensor& image_global, const at::Tensor& image_tokens, std::int64_t k) const;
  /// That of single patches, pooled with the zero token: [N, P, M].
  at::Tensor of_patches(const at::Tensor& image_tokens) const;
  /// How much each text looks at each patch, the heads' mean: [N, P, M].
  at::Tensor attention(const at::Tensor& image_tokens) const;

 private:
  at::Tensor of_all(const at::Tensor& distinct) const;

  at::Tensor texts_;  // [M, D]
  at::Tensor place_;  // [M] int64, of each text among the distinct ones
  TextConditionedScores scores_;

  struct Distinct {
    at::Tensor rows, place;
  };
  ConditionedSimilarity(TextConditionedPool& pool, const at::Tensor& texts, const Distinct& distinct);
  static Distinct distinct_rows(const at::Tensor& texts);
};

}  // namespace tessera::metrics
