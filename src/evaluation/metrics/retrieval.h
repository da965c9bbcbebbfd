#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera::metrics {

struct RetrievalScores {
  std::vector<double> image_to_text;  // recall for each k
  std::vector<double> text_to_image;
  at::Tensor image_to_text_rank;  // [N] int64, rank of the nearest of the image's own texts, counted from 0; -1 if it has none
  at::Tensor text_to_image_rank;  // [M] int64, rank of the text's image; -1 if the text has no image
};

/// The rows begin, ..., end - 1.
struct RowRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// A function that returns the similarities of a range of images with a range of texts, float [images, texts].
using SimilarityTile = std::function<at::Tensor(RowRange images, RowRange texts)>;

/// Returns recall at k in both directions. A query is a hit if at least one matching item is among the first k; items with equal
/// similarities are ordered by index. text_image, int64 [M], holds for each text the index of its image (0 to images - 1), or -1 if the
/// text has no image. Works in tiles, so that a large similarity matrix is never in memory as a whole. Throws c10::Error if text_image is
/// out of range.
RetrievalScores retrieval_recall(const SimilarityTile& similarity, std::int64_t images, const at::Tensor& text_image,
                                 const std::vector<std::int64_t>& topk = {1, 5, 10});

/// Returns the recall for the cosines of image_features [N, D] and text_features [M, D], both floating-point. This is faster than the
/// general function, because each float32 tile serves both directions; the ranks still equal those of double precision. Throws c10::Error
/// if the shapes do not match.
RetrievalScores retrieval_recall(const at::Tensor& image_features, const at::Tensor& text_features,
                                 const at::Tensor& text_image, const std::vector<std::int64_t>& topk = {1, 5, 10});

/// Returns the k candidates with the greatest cosine for each query, best first; equal cosines are ordered by index. The result
/// holds indices, int64 [Q, min(k, M)], and cosines, double [Q, min(k, M)]. queries: [Q, D]. candidates: [M, D].
std::pair<at::Tensor, at::Tensor> nearest_by_cosine(const at::Tensor& queries, const at::Tensor& candidates,
                                                    std::int64_t k);

}  // namespace tessera::metrics
