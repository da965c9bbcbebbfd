#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace tessera::metrics {

struct PairScores {
  at::Tensor right;              // [N] bool
  double accuracy = 0;           // over all samples
  at::Tensor category_accuracy;  // [K] double; -1 if the category has no sample
  double mean_category_accuracy = 0;
  at::Tensor category_count;  // [K] int64
};

/// Returns the share of true entries of `right` [N] bool over all samples and by category, int64 [N] in 0..categories-1.
PairScores category_accuracy(const at::Tensor& right, const at::Tensor& category, std::int64_t categories);

/// A pair is right only if positive > negative; equal or NaN is wrong (as in SugarCrepe, SVO probes, FOIL).
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

/// Returns the Winoground scores (Thrush et al. 2022, eq. 1-3); all comparisons are strict. scores [N, 2, 2] is
/// [n][caption][image].
WinogroundScores winoground(const at::Tensor& scores);

struct ParaphraseScores {
  at::Tensor image_to_text;  // [N] bool: the image is closer to both right texts than to the wrong one
  at::Tensor text_only;      // [N] bool: the right texts are closer to each other than either is to the wrong one
};

/// Returns the SugarCrepe++ scores (Dumpala et al. 2024): texts 0 and 1 are right, text 2 is wrong. All comparisons are strict.
/// image_scores [N, 3] compare the image with each text, text_scores [N, 3, 3] the texts with each other.
ParaphraseScores paraphrase(const at::Tensor& image_scores, const at::Tensor& text_scores);

/// Returns whether all members of each group are right, bool [groups]; true for an empty group. right [N] bool; group [N] int64
/// in 0..groups-1, or -1 for no group.
at::Tensor all_right(const at::Tensor& right, const at::Tensor& group, std::int64_t groups);

/// Returns whether the first score of each row is greater than all others, [N] bool; equal or NaN is false. scores [N, K], K > 1.
at::Tensor first_is_best(const at::Tensor& scores);

}  // namespace tessera::metrics
