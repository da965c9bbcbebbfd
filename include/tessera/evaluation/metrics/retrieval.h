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
  at::Tensor image_to_text_rank;  // [N] int64, place of the best right text, from 0; -1: the image has none
  at::Tensor text_to_image_rank;  // [M] int64; -1: the text has no image
};

/// Rows begin .. end - 1.
struct RowRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// Gives the similarity of some images with some texts, [images, texts] float.
using SimilarityTile = std::function<at::Tensor(RowRange images, RowRange texts)>;

/// Recall at k both ways: a hit if at least one right item is among the first k; equal similarities rank by index.
/// text_image [M] int64 is the image (of so many) that each text belongs to (-1: none). Works in tiles: never holds
/// [N, M] when that is large. Throws c10::Error for a text_image out of range.
RetrievalScores retrieval_recall(const SimilarityTile& similarity, std::int64_t images, const at::Tensor& text_image,
                                 const std::vector<std::int64_t>& topk = {1, 5, 10});

/// The same by cosine of image_features [N, D] and text_features [M, D] floating, faster: tiles in float32 serve both
/// directions, and ranks are those of double all the same. Throws c10::Error for shapes that do not match.
RetrievalScores retrieval_recall(const at::Tensor& image_features, const at::Tensor& text_features,
                                 const at::Tensor& text_image, const std::vector<std::int64_t>& topk = {1, 5, 10});

/// The k best candidates of each query by cosine, best first, equal cosines by index.
/// queries [Q, D], candidates [M, D]; returns indices [Q, min(k, M)] int64 and cosines [Q, min(k, M)] double.
std::pair<at::Tensor, at::Tensor> nearest_by_cosine(const at::Tensor& queries, const at::Tensor& candidates,
                                                    std::int64_t k);

}  // namespace tessera::metrics
