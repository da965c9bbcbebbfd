#pragma once

#include <optional>
#include <utility>

#include <tessera/objectives/contrastive_objective.h>

namespace tessera {

struct RegionContrastSettings {
  double region_weight = 1;
  double hard_weight = 0;
  double rank_weight = 0;
  double text_weight = 0;
  std::optional<double> rank_margin;
  double rank_margin_bound = 10;
  std::int64_t text_negatives = 10;
  double text_threshold = 0.95;
  std::int64_t grid_rows = 0;
  std::optional<std::int64_t> chunk;
};

template <class Visitor>
void fields(Visitor& v, RegionContrastSettings& s) {
  v("region_weight", s.region_weight, "weight of the contrast of all boxes with all phrases of the batch; 0: off",
    config::at_least(0));
  v("hard_weight", s.hard_weight, "weight of the choice of a box's phrase among its own negatives; 0: off",
    config::at_least(0));
  v("rank_weight", s.rank_weight, "weight of the margin by which a box's phrase stands above its negatives; 0: off",
    config::at_least(0));
  v("text_weight", s.text_weight, "weight of the term that pushes similar phrases apart; 0: off", config::at_least(0));
  v("rank_margin", s.rank_margin,
    "the margin, in logits; null: the mean distance of phrases to negatives in the step before, of all ranks",
    config::at_least(0));
  v("rank_margin_bound", s.rank_margin_bound, "the most that a margin of null becomes", config::at_least(0));
  v("text_negatives", s.text_negatives, "phrases that each phrase is pushed away from, the most similar ones",
    config::at_least(1));
  v("text_threshold", s.text_threshold, "phrases with a cosine above this one mean the same: they are not pushed apart",
    config::in_range(-1, 1));
  v("grid_rows", s.grid_rows, "rows of patches in an image; 0: as many as columns", config::at_least(0));
  v("chunk", s.chunk,
    "boxes in a tile: similarities are made tile by tile, forward and again backward, to save memory; null: all at "
    "once",
    config::at_least(1));
}
std::optional<config::Problem> validate(const RegionContrastSettings& settings);

/// FG-CLIP (Xie et al. 2025, arXiv 2505.05071) and FG-CLIP 2 (Xie et al. 2025, arXiv 2510.10921) on boxes with phrases and
/// phrases that almost describe them. A box's embedding r is the mean of the image's dense tokens in it (roi_align, one
/// bin, aligned, one point per patch); its phrase has the embedding t, negatives have n_1 .. n_H. All have unit length;
/// s(., .) is the cosine times exp(logit_scale), the one of all terms. N boxes of all ranks have phrases. The loss is the
/// weighted sum of the terms whose weight is above 0:
///
/// loss_region  mean over boxes i of (log sum_j exp(s(r_i, t_j) - s(r_i, t_i)) + log sum_j exp(s(r_j, t_i) - s(r_i, t_i))) / 2,
///              j over the boxes whose phrase has other tokens, and i itself (FG-CLIP, section 3.1, regional contrast; leaving
///              out equal phrases is ours)
/// loss_hard    mean over boxes with negatives of log(1 + sum_h exp(s(r, n_h) - s(r, t))) (FG-CLIP, hard negatives)
/// loss_rank    mean over pairs of a box and one of its negatives of max(0, s(r, n_h) - s(r, t) + m) (FG-CLIP 2, rank loss).
///              Of m the paper says that it follows the distances in the step before and that ranks share it. Here m is
///              the mean of s(r, t) - s(r, n_h) over all pairs of all ranks in the forward pass before, in [0, bound], 0 at
///              first, and stays where a batch has no negatives; it is the buffer `margin` and moves at the end of each
///              forward pass in training, as the running averages of batch norm do
/// loss_text    mean over phrases i with such j of log sum_j exp(cos(t_i, t_j)), j over the `text_negatives` phrases of all
///              ranks that are most similar to i, without those of the same tokens or a cosine above `text_threshold` (FG-CLIP
///              2, intra-modal contrast of texts, whose cosines have no temperature). It has no positive: not 0 at its best
///
/// A box takes part where both its mask and its phrase are there; what stands behind the masks touches nothing. Without any
/// box the loss is 0. Statistic `hard_accuracy`: share of the boxes with
/// negatives whose phrase is the most similar; `rank_margin`: m.
class RegionContrast : public ContrastiveObjective {
 public:
  RegionContrast(const RegionContrastSettings& settings, const ObjectiveContext& context);
  Losses forward(const Features& features, const StepContext& context) override;
  Needs needs() const override;

 private:
  struct Regions;
  struct Gaps;

  bool wants_negatives() const { return settings_.hard_weight > 0 || settings_.rank_weight > 0; }
  Regions regions_of(const Features& features) const;
  Gaps gaps_of(const Regions& regions) const;
  at::Tensor region_loss(const Regions& regions, const ProcessGroup& group) const;
  at::Tensor rank_loss(const Gaps& gaps, const StepContext& context);
  at::Tensor text_loss(const Regions& regions, const ProcessGroup& group) const;

  RegionContrastSettings settings_;
  at::Tensor margin_;  // buffer [], undefined where it is given or nobody asks for it
};

}  // namespace tessera
