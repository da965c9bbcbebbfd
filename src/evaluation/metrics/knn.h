#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace tessera::metrics {

struct KnnScores {
  at::Tensor neighbors;     // [M, k] int64, indices of training rows, best first
  at::Tensor probabilities;  // [M, C] double
  at::Tensor prediction;     // [M] int64
  at::Tensor in_top5;        // [M] bool, true if the label is among the best min(5, k, C) classes
  double top1 = 0;
  double top5 = 0;  // share of test rows whose label is among the best min(5, k, C) classes
};

/// DINO's k-NN classifier (Caron et al. 2021, 4.1): the k nearest training rows (by cosine) vote for their classes, each with the weight
/// exp(cosine / temperature). A k above N counts as N. At equal cosines, the row with the lower index wins; at equal votes, the class with
/// the lower index. Test rows with the label -1 are left out of the scores.
KnnScores knn_classification(const at::Tensor& train_features, const at::Tensor& train_labels,
                             const at::Tensor& test_features, const at::Tensor& test_labels, std::int64_t num_classes,
                             std::int64_t k = 20, double temperature = 0.07);

}  // namespace tessera::metrics
