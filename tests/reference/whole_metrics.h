#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "src/evaluation/metrics/captions.h"
#include "src/evaluation/metrics/cosine.h"
#include "src/evaluation/metrics/pairs.h"
#include "src/evaluation/metrics/segmentation.h"
#include "src/evaluation/metrics/zero_shot.h"

/// Metrics of whole data sets. The tasks compute them batch by batch, with the same functions.
namespace tessera::metrics {

/// Returns ZeroShotMeter's scores for the cosines of image_features, float [N, D], with class_embeddings(). labels: int64 [N].
inline ZeroShotScores zero_shot_classification(const at::Tensor& image_features, const at::Tensor& labels,
                                               const at::Tensor& prompt_features, const at::Tensor& prompt_class,
                                               std::int64_t num_classes, const std::vector<std::int64_t>& topk = {1, 5}) {
  ZeroShotMeter meter(num_classes, topk);
  meter.add(CosinesWith(class_embeddings(prompt_features, prompt_class, num_classes))(image_features), labels);
  return meter.scores();
}

struct SegmentationPrediction {
  at::Tensor prediction;        // [B, H, W] int64
  at::Tensor patch_similarity;  // [B, C, rows, columns] double, cosines
};

/// Applies segment_pixels() to the cosines of patch_features, float [B, rows * columns, D], with class_features, float [C, D]. target: int64
/// [B, H, W].
inline SegmentationPrediction zero_shot_segmentation(const at::Tensor& patch_features, const at::Tensor& class_features,
                                                     const at::Tensor& target, const SegmentationOptions& options) {
  const auto [rows, columns] = options.grid;
  const at::Tensor cosines = CosinesWith(class_features)(patch_features);  // [B, P, C]
  SegmentationPrediction out{.prediction = at::empty_like(target, at::kLong), .patch_similarity = cosines.transpose(1, 2).unflatten(2, {rows, columns})};
  for (std::int64_t b = 0; b < target.size(0); ++b)
    out.prediction[b].copy_(segment_pixels(out.patch_similarity[b], target[b], options));
  return out;
}

/// Returns SegmentationMeter's scores for one batch.
inline SegmentationScores segmentation_scores(const at::Tensor& prediction, const at::Tensor& target, std::int64_t num_classes,
                                              std::optional<std::int64_t> background_index = std::nullopt, std::int64_t ignore_index = 255) {
  SegmentationMeter meter(num_classes, background_index, ignore_index);
  meter.add(prediction, target);
  return meter.scores();
}

/// Returns k_precision() for the captions with the greatest scores. scores: float [N, M].
inline KPrecisionScores k_precision(const at::Tensor& scores, const std::vector<std::string>& captions,
                                    const std::vector<std::int64_t>& caption_image,
                                    const std::optional<std::vector<std::string>>& lexicon, bool clip_counts = false) {
  const auto all = [&](RowRange images, RowRange) { return scores.slice(0, images.begin, images.end); };
  return k_precision(best_texts(all, scores.size(0), scores.size(1)), captions, caption_image, lexicon, clip_counts);
}

/// Returns the shares of pairs whose right text scores higher than the wrong one. positive and negative: float [N].
inline PairScores pairwise_accuracy(const at::Tensor& positive, const at::Tensor& negative, const at::Tensor& category,
                                    std::int64_t categories) {
  return category_accuracy(first_is_best(at::stack({positive, negative}, 1)), category, categories);
}

}  // namespace tessera::metrics
