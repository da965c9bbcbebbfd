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
  v("region_weight", s.region_weight, "weight of the contrast between all boxes and all phrases of the batch; 0: off",
    config::at_least(0));
  v("hard_weight", s.hard_weight, "weight of the contrast between each box's phrase and the box's own negatives; 0: off",
    config::at_least(0));
  v("rank_weight", s.rank_weight, "weight of the margin loss between each box's phrase and the box's own negatives; 0: off",
    config::at_least(0));
  v("text_weight", s.text_weight, "weight of the term that pushes similar phrases apart; 0: off", config::at_least(0));
  v("rank_margin", s.rank_margin,
    "the margin, in logits; null: the mean gap between phrase and negative logits in the previous step, over all ranks",
    config::at_least(0));
  v("rank_margin_bound", s.rank_margin_bound, "upper bound of the margin if rank_margin is null", config::at_least(0));
  v("text_negatives", s.text_negatives, "number of phrases that each phrase is pushed away from; these are the most similar ones",
    config::at_least(1));
  v("text_threshold", s.text_threshold, "phrases with a cosine above this threshold count as equal and are not pushed apart",
    config::in_range(-1, 1));
  v("grid_rows", s.grid_rows, "number of rows of patches in an image; 0: as many as there are columns", config::at_least(0));
  v("chunk", s.chunk,
    "number of boxes per tile: to save memory, similarities are computed tile by tile, and again in the backward pass; null: all at once",
    config::at_least(1));
}
std::optional<config::Problem> validate(const RegionContrastSettings& settings);

/// The losses of FG-CLIP (Xie et al. 2025, arXiv 2505.05071) and FG-CLIP 2 (Xie et al. 2025, arXiv 2510.10921) on boxes that have a
/// matching phrase and negative phrases, which almost describe the box. A box's embedding r is the mean of the image's dense tokens
/// inside the box (roi_align, one bin, aligned, one point per patch); t is the embedding of its phrase, and n_1 .. n_H are those of
/// its negatives. All embeddings have unit length; s(., .) is the cosine times exp(logit_scale), which all terms share. The loss is the
/// weighted sum of the terms whose weight is above 0. The indices i and j run over the boxes that have phrases, on all ranks:
///
/// loss_region  mean over boxes i of (log sum_j exp(s(r_i, t_j) - s(r_i, t_i)) + log sum_j exp(s(r_j, t_i) - s(r_i, t_i))) / 2,
///              where j runs over i itself and the boxes whose phrase has other tokens than the phrase of i (FG-CLIP, section
///              3.1, regional contrast; skipping equal phrases is our addition)
/// loss_hard    mean over boxes with negatives of log(1 + sum_h exp(s(r, n_h) - s(r, t))) (FG-CLIP, hard negatives)
/// loss_rank    mean over pairs of a box and one of its negatives of max(0, s(r, n_h) - s(r, t) + m) (FG-CLIP 2, rank loss).
///              The paper says that m follows the distances in the previous step and that ranks share it. Here m is the mean of
///              s(r, t) - s(r, n_h) over all pairs of all ranks in the previous forward pass, clamped to [0, bound]. It starts at
///              0 and does not change on a batch without negatives. It is the buffer `margin`, updated at the end of each
///              training forward pass, like the running averages of batch norm
/// loss_text    mean over phrases i of log sum_j exp(cos(t_i, t_j)), where j runs over the `text_negatives` phrases of all ranks
///              that are most similar to i, except those with the same tokens or a cosine above `text_threshold`; phrases without
///              any such j do not count (FG-CLIP 2, intra-modal contrast of texts; its cosines have no temperature). The term
///              has no positive, so its minimum is not 0
///
/// A box counts only if its mask is true and its phrase is present; masked values have no effect. Without any box the loss is 0.
/// Statistics: among the boxes that have negatives, `hard_accuracy` is the share that is more similar to its phrase than to any of its
/// negatives; `rank_margin` is m.
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
  at::Tensor margin_;  // a scalar buffer; undefined if the margin is a setting or is not needed
};

}  // namespace tessera
