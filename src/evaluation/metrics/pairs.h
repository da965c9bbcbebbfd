#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace tessera::metrics {

struct PairScores {
  double accuracy = 0;           // share of right samples among all samples
  at::Tensor category_accuracy;  // [K] double; -1 if the category has no sample
  double mean_category_accuracy = 0;
  at::Tensor category_count;  // [K] int64
};

/// Returns the share of true entries in `right`, bool [N], over all samples and for each category. category: int64 [N] in
/// 0..categories-1.
PairScores category_accuracy(const at::Tensor& right, const at::Tensor& category, std::int64_t categories);

struct WinogroundScores {
  at::Tensor text_correct;   // [N] bool
  at::Tensor image_correct;  // [N] bool
};

/// Returns which samples are right (Winoground, Thrush et al. 2022, eq. 1-3). All comparisons are strict. The indices of scores [N, 2, 2]
/// are the sample, the caption and the image.
WinogroundScores winoground(const at::Tensor& scores);

struct ParaphraseScores {
  at::Tensor image_to_text;  // [N] bool, true if the image is closer to both right texts than to the wrong one
  at::Tensor text_only;      // [N] bool, true if the right texts are closer to each other than either is to the wrong one
};

/// Returns the SugarCrepe++ scores (Dumpala et al. 2024): texts 0 and 1 are right, text 2 is wrong. All comparisons are strict.
/// image_scores [N, 3] are the image's similarities to the texts, text_scores [N, 3, 3] the texts' similarities to each other.
ParaphraseScores paraphrase(const at::Tensor& image_scores, const at::Tensor& text_scores);

/// Returns, for each group, whether all its members are right: bool [groups], true for an empty group. right: bool [N]. group:
/// int64 [N] in 0..groups-1, or -1 for no group.
at::Tensor all_right(const at::Tensor& right, const at::Tensor& group, std::int64_t groups);

/// Returns, for each row of scores [N, K], whether the first score is greater than all others: bool [N]. Equal scores and NaN count as
/// false (as in SugarCrepe, SVO probes, FOIL). K must be at least 2.
at::Tensor first_is_best(const at::Tensor& scores);

}  // namespace tessera::metrics
