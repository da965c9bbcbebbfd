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

/// The share of right [N] bool over all samples and by category, int64 [N] in 0..categories-1.
PairScores category_accuracy(const at::Tensor& right, const at::Tensor& category, std::int64_t categories);

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

struct ParaphraseScores {
  at::Tensor image_to_text;  // [N] bool: the picture is nearer to both right texts than to the wrong one
  at::Tensor text_only;      // [N] bool: the right texts are nearer to each other than either is to the wrong one
};

/// SugarCrepe++ (Dumpala et al. 2024): of texts 0 and 1, which are right, and 2, which is wrong. All comparisons are strict.
/// image_scores [N, 3] of the picture with each; text_scores [N, 3, 3] of the texts with each other.
ParaphraseScores paraphrase(const at::Tensor& image_scores, const at::Tensor& text_scores);

/// Whether all of a group are right, bool [groups]; a group without any is. right [N] bool, group [N] int64 in 0..groups-1, or -1:
/// in none.
at::Tensor all_right(const at::Tensor& right, const at::Tensor& group, std::int64_t groups);

/// Whether the first of several scores is greater than all others; equal or NaN: wrong. scores [N, K], K > 1; [N] bool.
at::Tensor first_is_best(const at::Tensor& scores);

}  // namespace tessera::metrics
