#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "src/objectives/add_objective.h"
#include "src/objectives/common/reduction.h"
#include "src/objectives/pairs/contrast.h"
#include "src/objectives/pairs/features.h"
#include <tessera/base/error.h>
#include <tessera/base/random.h>
#include <tessera/distributed/collectives.h>
#include <tessera/objectives/contrastive_objective.h>
#include <tessera/ops/numeric.h>
#include <tessera/ops/roi_align.h>

namespace tessera {
namespace {

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

void fields(auto& v, RegionContrastSettings& s) {
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

constexpr const char* kBoxView = "image";
constexpr double kNoNegative = -std::numeric_limits<double>::infinity();

// Returns one number per text, int64 [B * R]. Texts [B, R, L] whose real ids are the same have the same number. The number is a multilinear
// hash modulo 2^64, for which two different texts collide with a probability of 2^-63.
at::Tensor text_numbers(const TowerInput& input) {
  if (!input.ids.defined()) return {};
  at::Tensor ids = input.ids + 1;
  if (input.mask.defined()) ids = ids.masked_fill(input.mask.logical_not(), 0);
  at::Tensor numbers = at::zeros(ids.sizes().slice(0, 2), ids.options());
  for (std::int64_t place = 0; place < ids.size(2); ++place) {  // no tensor of factors, because a recorded step must not copy from the CPU
    const std::uint64_t factor = derive_seed(0, Purpose::negatives, {static_cast<std::uint64_t>(place)});
    numbers.add_(ids.select(2, place), static_cast<std::int64_t>(factor));
  }
  return numbers.flatten();
}

struct Grid {
  std::int64_t rows, columns;
};

Grid fixed_grid(std::int64_t patches, std::int64_t given_rows) {
  const std::int64_t rows =
      given_rows > 0 ? given_rows : static_cast<std::int64_t>(std::llround(std::sqrt(static_cast<double>(patches))));
  if (patches % rows != 0 || (given_rows == 0 && rows * rows != patches))
    user_error("objective region_contrast: ", patches, " patches of an image do not form a ",
               given_rows > 0 ? "grid of " + std::to_string(rows) + " rows" : std::string("square"),
               ": set its grid_rows to the image's height over the patch size");
  return {rows, patches / rows};
}

// Pools tokens [n, rows * columns, D] inside boxes [n, R, 4], whose corners are fractions of the image. Returns [n, R, D].
at::Tensor pool_boxes(const at::Tensor& tokens, const at::Tensor& corners, const Grid& grid) {
  const auto width = static_cast<double>(grid.columns), height = static_cast<double>(grid.rows);
  const std::vector<at::Tensor> sides = corners.unbind(-1);
  const at::Tensor cells = at::stack({sides[0] * width, sides[1] * height, sides[2] * width, sides[3] * height}, -1);
  const at::Tensor image = at::arange(corners.size(0), corners.options().dtype(at::kLong));
  return roi_align(tokens.unflatten(1, {grid.rows, grid.columns}), cells.flatten(0, 1),
                   image.repeat_interleave(corners.size(1)))
      .view({corners.size(0), corners.size(1), tokens.size(2)});
}

// Like pool_boxes(), but for images with different grids. `grids` is int64 [B, 2] on the CPU. An image's real tokens come before its
// padding.
at::Tensor pool_boxes_of_grids(const at::Tensor& tokens, const at::Tensor& corners, const at::Tensor& grids) {
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<std::int64_t>> images;
  for (std::int64_t i = 0; i < grids.size(0); ++i)
    images[{grids[i][0].item<std::int64_t>(), grids[i][1].item<std::int64_t>()}].push_back(i);
  std::vector<at::Tensor> pooled;
  std::vector<std::int64_t> place(static_cast<std::size_t>(grids.size(0)));
  std::int64_t done = 0;
  for (const auto& [grid, own] : images) {
    const at::Tensor rows = at::tensor(own).to(tokens.device());
    pooled.push_back(pool_boxes(tokens.index_select(0, rows).narrow(1, 0, grid.first * grid.second),
                                corners.index_select(0, rows), {grid.first, grid.second}));
    for (const std::int64_t image : own) place[static_cast<std::size_t>(image)] = done++;
  }
  return at::cat(pooled).index_select(0, at::tensor(place).to(tokens.device()));
}

at::Tensor unit_where(const at::Tensor& embeddings, const at::Tensor& present) {
  return unit_rows(to_compute(embeddings).masked_fill(present.logical_not().unsqueeze(-1), 0.0));
}

// The texts of a view with n texts per image. global: embeddings [B, n, D]. present: bool [B, n].
struct PhraseTexts {
  at::Tensor global, present;
};

PhraseTexts texts_of(const Features& features, const char* view, std::int64_t batch, std::int64_t width) {
  const TowerFeatures& text = features.text(view);
  if (!text.global.defined()) refuse_missing_feature("region_contrast", "text_global");
  TORCH_CHECK(text.global.dim() == 3 && text.global.size(0) == batch && text.global.size(2) == width,
              "region_contrast: the embeddings of ", view, " must be [B, n, D] with B = ", batch, " and D = ", width,
              ", got ", text.global.sizes());
  const at::Tensor present = text.present.defined()
                                 ? text.present
                                 : at::ones(text.global.sizes().slice(0, 2), text.global.options().dtype(at::kBool));
  TORCH_CHECK(present.sizes() == text.global.sizes().slice(0, 2) && present.scalar_type() == at::kBool,
              "region_contrast: present of ", view, " must be bool ", text.global.sizes().slice(0, 2), ", got ",
              present.scalar_type(), " ", present.sizes());
  return {text.global, present};
}

// This rank's M = B * R boxes and their phrases; rows of absent boxes are 0.
struct MatchedRegions {
  at::Tensor boxes, phrases;  // [M, D], of unit length
  at::Tensor present;         // bool [M]
  at::Tensor numbers;         // int64 [M], one per phrase, equal for equal phrases; undefined if all phrases differ
  at::Tensor negatives;       // [M, H, D], of unit length; undefined if not needed
  at::Tensor negative;        // bool [M, H], true for present negatives
};

// The differences between the logit of a box's phrase and the logits of the box's negatives.
struct PhraseGaps {
  at::Tensor logits;    // [M, H], s(r, t) - s(r, n_h): logits s of box r with its phrase t and with its negatives n_h
  at::Tensor negative;  // bool [M, H], true for present negatives
};

std::optional<config::Problem> validate(const RegionContrastSettings& s) {
  if (s.region_weight + s.hard_weight + s.rank_weight + s.text_weight > 0) return std::nullopt;
  return config::Problem{"region_weight", "is 0, and so are hard_weight, rank_weight and text_weight: set one above 0"};
}

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
  RegionContrast(const RegionContrastSettings& settings, const ObjectiveContext& context)
      : ContrastiveObjective(context), settings_(settings) {
    if (settings.rank_weight > 0 && !settings.rank_margin) margin_ = register_buffer("margin", at::zeros({}, at::kFloat));
  }

  Losses forward(const Features& features, const StepContext& context) override {
    const NoAutocast no_autocast;
    const MatchedRegions regions = regions_of(features);
    Losses out;
    if (settings_.region_weight > 0) out.add("loss_region", settings_.region_weight, region_loss(regions, context.group));
    if (wants_negatives()) {
      const PhraseGaps gaps = gaps_of(regions);
      const at::Tensor absent = gaps.negative.logical_not(), counted = gaps.negative.any(1);
      const auto mean_over_boxes = [&](const at::Tensor& values) {
        return mean_over_tokens(values.masked_fill(counted.logical_not(), 0.0), counted, context.group);
      };
      if (settings_.hard_weight > 0) {
        const at::Tensor right = at::zeros({gaps.logits.size(0), 1}, gaps.logits.options());
        const at::Tensor choices = at::cat({right, -gaps.logits.masked_fill(absent, -kNoNegative)}, 1);
        out.add("loss_hard", settings_.hard_weight, mean_over_boxes(choices.logsumexp(1)));
      }
      if (settings_.rank_weight > 0) out.add("loss_rank", settings_.rank_weight, rank_loss(gaps, context));
      const at::Tensor beaten = gaps.logits.detach().gt(0).logical_or_(absent).all(1);
      out.statistics.emplace_back("hard_accuracy", mean_over_boxes(beaten.to(gaps.logits.scalar_type())));
      if (margin_.defined()) out.statistics.emplace_back("rank_margin", margin_.clone());
    }
    if (settings_.text_weight > 0) out.add("loss_text", settings_.text_weight, text_loss(regions, context.group));
    return out;
  }

  Needs needs() const override {
    Needs out{.images = {{kBoxView, {.dense = true, .boxes = true}}},
              .texts = {{kPhrases, {.input_ids = true, .optional = true}}}};
    if (wants_negatives()) out.texts[kPhraseNegatives] = {.optional = true};
    return out;
  }

 private:
  bool wants_negatives() const { return settings_.hard_weight > 0 || settings_.rank_weight > 0; }

  MatchedRegions regions_of(const Features& features) const {
    const TowerFeatures& image = features.image(kBoxView);
    if (!image.dense.defined()) refuse_missing_feature("region_contrast", "image_dense");
    TORCH_CHECK(image.dense.dim() == 3, "region_contrast: image_dense must be [B, N, D], got ", image.dense.sizes());
    const std::int64_t batch = image.dense.size(0), width = image.dense.size(2);
    const auto [phrases, phrase] = texts_of(features, kPhrases, batch, width);
    const std::int64_t own = phrases.size(1);
    const at::Tensor &corners = image.boxes.corners, &mask = image.boxes.mask;
    TORCH_CHECK(own > 0 && corners.defined() && mask.defined() && corners.sizes() == at::IntArrayRef({batch, own, 4}) &&
                    mask.sizes() == phrase.sizes(),
                "region_contrast: boxes must be [B, R, 4] with B = ", batch, " and R = ", own,
                ", at least 1, as many as phrases");
    at::Tensor present = mask.logical_and(phrase);
    if (image.present.defined()) present = present.logical_and(image.present.unsqueeze(1));

    MatchedRegions out;
    const at::Tensor places = corners.masked_fill(present.logical_not().unsqueeze(2), 0.0);
    const at::Tensor pooled = image.grids.defined()
                                  ? pool_boxes_of_grids(image.dense, places, image.grids)
                                  : pool_boxes(image.dense, places, fixed_grid(image.dense.size(1), settings_.grid_rows));
    out.boxes = unit_where(pooled, present).flatten(0, 1);
    out.phrases = unit_where(phrases, present).flatten(0, 1);
    out.present = present.flatten();
    out.numbers = text_numbers(features.text(kPhrases).input);
    if (!wants_negatives()) return out;

    const auto [negatives, negative] = texts_of(features, kPhraseNegatives, batch, width);
    TORCH_CHECK(negatives.size(1) % own == 0, "region_contrast: ", kPhraseNegatives,
                " must hold the same number of texts for each of the ", own, " boxes, got ", negatives.size(1), " in total");
    const std::int64_t each = negatives.size(1) / own;
    const at::Tensor there = negative.view({batch, own, each}).logical_and(present.unsqueeze(2));
    out.negatives = unit_where(negatives.view({batch, own, each, width}), there).flatten(0, 1);
    out.negative = there.flatten(0, 1);
    return out;
  }

  PhraseGaps gaps_of(const MatchedRegions& regions) const {
    const at::Tensor right = (regions.boxes * regions.phrases).sum(1, /*keepdim=*/true);
    const at::Tensor others = at::matmul(regions.negatives, regions.boxes.unsqueeze(2)).squeeze(2);
    return {(right - others) * scale(right.scalar_type()), regions.negative};
  }

  at::Tensor region_loss(const MatchedRegions& regions, const ProcessGroup& group) const {
    PairRelation relation = PairRelation::of_pairs(group.all_gather(regions.present));
    relation.duplicates = PairRelation::Duplicates::masked;
    if (regions.numbers.defined()) relation.image_group = group.all_gather(regions.numbers);
    return global_contrast(regions.boxes, regions.phrases, scale(regions.boxes.scalar_type()), {.chunk = settings_.chunk},
                           group, relation)
        .loss;
  }

  at::Tensor rank_loss(const PhraseGaps& gaps, const StepContext& context) {
    const at::Tensor margin = settings_.rank_margin ? at::full({}, *settings_.rank_margin, gaps.logits.options())
                                                    : margin_.to(gaps.logits.scalar_type()).clone();
    const at::Tensor short_by = (margin - gaps.logits).relu().masked_fill(gaps.negative.logical_not(), 0.0);
    if (margin_.defined() && context.training) {
      const at::NoGradGuard no_grad;
      const at::Tensor there = gaps.logits.detach().masked_fill(gaps.negative.logical_not(), 0.0);
      at::Tensor sums = at::stack({there.sum(), gaps.negative.sum().to(there.scalar_type())});
      context.group.all_reduce(sums);
      const at::Tensor mean = (sums[0] / sums[1].clamp_min(1)).clamp(0, settings_.rank_margin_bound);
      margin_.copy_(at::where(sums[1] > 0, mean, margin));
    }
    return mean_over_tokens(short_by, gaps.negative, context.group);
  }

  at::Tensor text_loss(const MatchedRegions& regions, const ProcessGroup& group) const {
    const at::Tensor all = gather_rows(regions.phrases, group),
                     present = group.all_gather(regions.present);  // [C, D], [C]
    const at::Tensor numbers = regions.numbers.defined() ? group.all_gather(regions.numbers) : at::Tensor();
    const std::int64_t rows = regions.phrases.size(0), first = group.rank() * rows;
    const std::int64_t kept = std::min(settings_.text_negatives, all.size(0)), tile = settings_.chunk.value_or(rows);
    std::vector<at::Tensor> chosen, are_there;  // [rows, kept]
    for (std::int64_t row = 0; row < rows; row += tile) {
      const at::NoGradGuard no_grad;
      const std::int64_t count = std::min(tile, rows - row);
      at::Tensor cosines = at::matmul(regions.phrases.narrow(0, row, count), all.t());
      cosines.masked_fill_((cosines > settings_.text_threshold).logical_or_(present.logical_not()), kNoNegative);
      if (numbers.defined())
        cosines.masked_fill_(regions.numbers.narrow(0, row, count).unsqueeze(1) == numbers, kNoNegative);
      cosines.diagonal(first + row).fill_(kNoNegative);
      const auto [values, places] = cosines.topk(kept, 1);
      chosen.push_back(places);
      are_there.push_back(values.isfinite());
    }
    const at::Tensor others = all.index_select(0, at::cat(chosen).flatten()).view({rows, kept, all.size(1)});
    const at::Tensor there = at::cat(are_there), counted = there.any(1).logical_and_(regions.present);
    const at::Tensor cosines = at::matmul(others, regions.phrases.unsqueeze(2)).squeeze(2);
    const at::Tensor logarithm = cosines.masked_fill(there.logical_not(), lowest(cosines.scalar_type())).logsumexp(1);
    return mean_over_tokens(logarithm.masked_fill(counted.logical_not(), 0.0), counted, group);
  }

  RegionContrastSettings settings_;
  at::Tensor margin_;  // a scalar buffer; undefined if the margin is a setting or is not needed
};

}  // namespace

void add_region_contrast(ObjectiveRegistry& list) {
  add_objective<RegionContrast, RegionContrastSettings>(list, "region_contrast",
      "contrast of boxes with their phrases and with phrases that almost describe them (FG-CLIP, Xie et al. 2025)");
}

}  // namespace tessera
