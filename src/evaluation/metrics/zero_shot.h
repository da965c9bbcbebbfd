#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera::metrics {

struct ZeroShotScores {
  at::Tensor prediction;      // [N] int64
  at::Tensor rank;            // [N] int64, rank of the image's class, counted from 0; -1 if the image has no label
  std::vector<double> topk;   // top-k accuracy for each k
  at::Tensor per_class;       // [C] double, top-1 accuracy; -1 if no image has the class
  double mean_per_class = 0;  // mean of per_class over the classes that have images
};

/// Measures zero-shot classification, batch by batch. The class with the greatest similarity is predicted (the lower class at
/// ties). A k above num_classes counts as num_classes.
class ZeroShotMeter {
 public:
  explicit ZeroShotMeter(std::int64_t num_classes, std::vector<std::int64_t> topk = {1, 5});
  /// Adds a batch. similarity: float [B, C]. labels: int64 [B]; images with the label -1 are left out of all means. Throws
  /// c10::Error if shapes do not match or labels are out of range.
  void add(const at::Tensor& similarity, const at::Tensor& labels);
  ZeroShotScores scores() const;

 private:
  std::int64_t num_classes_;
  std::vector<std::int64_t> topk_;
  std::vector<at::Tensor> predictions_, ranks_, labels_;  // [B], one tensor per batch
};

/// Returns one embedding per class, double [num_classes, D]: unit(mean of the class's unit prompts) (Radford et al. 2021, 3.1.4),
/// or a row of zeros for a class without prompts. prompt_features: float [M, D]. prompt_class: int64 [M] in 0..num_classes-1.
at::Tensor class_embeddings(const at::Tensor& prompt_features, const at::Tensor& prompt_class, std::int64_t num_classes);

/// Returns the mean over the classes in `labels` of 2 TP / (2 TP + FP + FN), where FP counts over all images (scikit-learn's f1_score with
/// average="macro" and labels=unique(labels), as WILDS measures iWildCam). prediction and labels: int64 [N], N > 0, in 0..num_classes-1.
double macro_f1(const at::Tensor& prediction, const at::Tensor& labels, std::int64_t num_classes);

/// The means of `hits` over the images of each group, and their number. A group is a number from 0.
struct GroupShares {
  at::Tensor share;        // [G] double; NaN for a group without images
  at::Tensor count;        // [G] int64
  std::int64_t worst = 0;  // the group with the smallest share; the lowest of equally small ones
};
/// hits: [N], 0 or 1 of any type; groups: int64 [N], N > 0, not negative.
GroupShares group_shares(const at::Tensor& hits, const at::Tensor& groups);

}  // namespace tessera::metrics
