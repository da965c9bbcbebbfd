#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera::metrics {

struct RetrievalScores {
  std::vector<double> image_to_text;  // recall at each k
  std::vector<double> text_to_image;
  at::Tensor image_to_text_rank;  // [N] int64, rank of the best right text, from 0; -1 if the image has none
  at::Tensor text_to_image_rank;  // [M] int64; -1 if the text has no image
};

/// The rows begin .. end - 1.
struct RowRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// Returns the similarity of a range of images with a range of texts, [images, texts] float.
using SimilarityTile = std::function<at::Tensor(RowRange images, RowRange texts)>;

/// Returns recall at k in both directions. A query is a hit if at least one right item is among the first k; equal similarities
/// rank by index. text_image [M] int64 is the image that each text belongs to, below `images`, or -1 for none. Works in tiles,
/// so that a large similarity matrix is never held whole. Throws c10::Error for a text_image out of range.
RetrievalScores retrieval_recall(const SimilarityTile& similarity, std::int64_t images, const at::Tensor& text_image,
                                 const std::vector<std::int64_t>& topk = {1, 5, 10});

/// The same by cosine of image_features [N, D] and text_features [M, D] floating, but faster: each float32 tile serves both
/// directions. The ranks still equal those of double precision. Throws c10::Error if the shapes do not match.
RetrievalScores retrieval_recall(const at::Tensor& image_features, const at::Tensor& text_features,
                                 const at::Tensor& text_image, const std::vector<std::int64_t>& topk = {1, 5, 10});

/// Returns the k best candidates of each query by cosine, best first, equal cosines by index: indices [Q, min(k, M)] int64 and
/// cosines [Q, min(k, M)] double. queries [Q, D], candidates [M, D].
std::pair<at::Tensor, at::Tensor> nearest_by_cosine(const at::Tensor& queries, const at::Tensor& candidates,
                                                    std::int64_t k);

}  // namespace tessera::metrics
