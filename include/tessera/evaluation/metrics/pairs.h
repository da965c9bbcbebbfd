#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace tessera::metrics {

struct PairScores {
  at::Tensor right;              // [N] bool
  double accuracy = 0;           // over all samples
  at::Tensor category_accuracy;  // [K] double; -1: no sample
  double mean_category_accuracy = 0;
  at::Tensor category_count;  // [K] int64
};

/// Right only if positive > negative (equal or NaN: wrong). SugarCrepe, SVO probes, FOIL.
/// positive_scores, negative_scores [N] float; category [N] int64 in 0..categories-1.
PairScores pairwise_accuracy(const at::Tensor& positive_scores, const at::Tensor& negative_scores,
                             const at::Tensor& category, std::int64_t categories);

struct WinogroundScores {
  double text_score = 0;
  double image_score = 0;
  double group_score = 0;
  at::Tensor text_correct;   // [N] bool
  at::Tensor image_correct;  // [N] bool
};

/// Thrush et al. 2022, eq. 1-3; all comparisons strict. scores [N, 2, 2]: [n][caption][image].
WinogroundScores winoground(const at::Tensor& scores);

}  // namespace tessera::metrics
