#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera::metrics {

struct ZeroShotScores {
  at::Tensor prediction;      // [N] int64
  at::Tensor rank;            // [N] int64, rank of the image's class, from 0; -1 if it has no label
  std::vector<double> topk;   // one share per k
  at::Tensor per_class;       // [C] double, top-1 accuracy; -1 if no image has the class
  double mean_per_class = 0;  // over the classes that have images
};

/// Accumulates zero-shot classification batch by batch: the class of greatest similarity is predicted, the lower one at ties. A
/// k above num_classes counts as num_classes.
class ZeroShotMeter {
 public:
  explicit ZeroShotMeter(std::int64_t num_classes, std::vector<std::int64_t> topk = {1, 5});
  /// similarity [B, C] float; labels [B] int64 (-1 is left out of every mean). Throws c10::Error for shapes that do not match
  /// and for labels out of range.
  void add(const at::Tensor& similarity, const at::Tensor& labels);
  ZeroShotScores scores() const;

 private:
  std::int64_t num_classes_;
  std::vector<std::int64_t> topk_;
  std::vector<at::Tensor> predictions_, ranks_, labels_;  // [B], one tensor per batch
};

/// Returns one embedding per class, [num_classes, D] double: unit(mean of the class's unit prompts) (Radford et al. 2021,
/// 3.1.4), or a row of zeros for a class without a prompt. prompt_features [M, D] float; prompt_class [M] int64 in
/// 0..num_classes-1.
at::Tensor class_embeddings(const at::Tensor& prompt_features, const at::Tensor& prompt_class,
                            std::int64_t num_classes);

/// Returns ZeroShotMeter's scores by cosine of image_features [N, D] float with class_embeddings(). labels [N] int64 (-1 is
/// left out of every mean). Throws c10::Error for shapes that do not match and for classes out of range.
ZeroShotScores zero_shot_classification(const at::Tensor& image_features, const at::Tensor& labels,
                                        const at::Tensor& prompt_features, const at::Tensor& prompt_class,
                                        std::int64_t num_classes, const std::vector<std::int64_t>& topk = {1, 5});

}  // namespace tessera::metrics
