#include "src/objectives/common/caption_contrast.h"

#include <algorithm>
#include <limits>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "src/distributed/saved_group.h"
#include "src/objectives/common/tiles.h"
#include <tessera/ops/numeric.h>

namespace tessera {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr double kEmptySum = -std::numeric_limits<double>::infinity();  // the logarithm of an empty sum

// Returns log(1 + exp(x)).
at::Tensor soft_plus(const at::Tensor& x) {
  return -at::log_sigmoid(-x);
}

// Computes the similarities [B, C, K] of this rank's images and all captions, one tile at a time.
class CaptionTiles {
 public:
  CaptionTiles(at::Tensor image, at::Tensor texts, CaptionRelation relation, std::int64_t chunk, int rank)
      : image_(std::move(image)),
        texts_(std::move(texts)),
        relation_(std::move(relation)),
        first_(rank * image_.size(0)),
        tiles_(image_.size(0), relation_.images(), chunk, image_.is_cpu(), relation_.captions()) {}

  std::int64_t batch() const { return image_.size(0); }
  std::int64_t images() const { return relation_.images(); }
  std::int64_t captions() const { return relation_.captions(); }
  std::int64_t first() const { return first_; }
  std::int64_t slots() const { return tiles_.slots(); }
  std::int64_t width() const { return tiles_.width(); }
  at::TensorOptions numbers() const { return image_.options(); }

  at::Tensor images_of(const Tile& tile) const { return tile.rows_of(image_); }
  at::Tensor texts_of(const Tile& tile) const {
    return texts_.narrow(0, tile.column * captions(), tile.columns * captions());
  }
  at::Tensor cosines(const Tile& tile) const {
    return at::matmul(images_of(tile), texts_of(tile).t()).view({tile.rows, tile.columns, captions()});
  }
  CaptionRelation::Tile relation_of(const Tile& tile) const {
    return relation_.tile(first_ + tile.row, tile.rows, tile.column, tile.columns);
  }
  at::Tensor own_of(const at::Tensor& values, const Tile& tile) const {
    return CaptionRelation::own_of(values, first_ + tile.row, tile.column);
  }

  // See Tiles::walk.
  template <class Body, class Merge>
  void walk(Body&& body, Merge&& merge) const {
    tiles_.walk(body, merge);
  }
  template <class Body>
  void walk(Body&& body) const {
    tiles_.walk(body, [](std::int64_t, std::int64_t) {});
  }

 private:
  at::Tensor image_, texts_;
  CaptionRelation relation_;
  std::int64_t first_;
  Tiles tiles_;
};

// The sums that the softmaxes of InfoNCE need, either for images or for captions. Shape for images: [B, K] with CaptionDenominator::slot,
// otherwise [B, 1]. Shape for captions: [C, K].
struct SoftmaxSums {
  at::Tensor log_sum;    // log of the softmax's denominator (for CaptionDenominator::negatives, without the positives)
  at::Tensor further;    // sum of the logits of duplicates that count as positives; undefined if there are none
  at::Tensor count;      // number of duplicates that count as positives, for each row or caption
  at::Tensor positives;  // number of positives of each row or caption, including duplicates that count as positives
  at::Tensor pull;       // only for the denominator `negatives`: the sum of sigmoid(log_sum - s) over the logits s of positives
  at::Tensor term;       // the loss of each row or caption

  static SoftmaxSums none(at::IntArrayRef shape, const at::TensorOptions& options, bool further) {
    SoftmaxSums out;
    out.log_sum = at::full(shape, kEmptySum, options);
    if (further) {
      out.further = at::zeros(shape, options);
      out.count = at::zeros(shape, options);
    }
    return out;
  }
};

// The gradient of a row's (or caption's) loss has a term for the softmax and a term for each positive. These are the weights of the terms.
struct GradientWeights {
  at::Tensor softmax, positive;
};

class CaptionInfoNce : public torch::autograd::Function<CaptionInfoNce> {
 public:
  static variable_list forward(AutogradContext* ctx, const at::Tensor& image, const at::Tensor& texts,
                               const at::Tensor& scale, std::int64_t denominator_number,
                               const CaptionRelation& relation, std::int64_t chunk, const ProcessGroup& group) {
    const NoAutocast no_autocast;
    const auto denominator = static_cast<CaptionDenominator>(denominator_number);
    const CaptionTiles tiles(image, texts, relation, chunk, group.rank());
    const bool negatives = denominator == CaptionDenominator::negatives;
    const bool further = relation.duplicates == CaptionRelation::Duplicates::positive && relation.has_duplicates();
    const std::int64_t kinds = denominator == CaptionDenominator::slot ? tiles.captions() : 1;
    SoftmaxSums rows = SoftmaxSums::none({tiles.batch(), kinds}, image.options(), further);
    SoftmaxSums columns = SoftmaxSums::none({tiles.images(), tiles.captions()}, image.options(), further);
    add_logits(tiles, scale, negatives, rows, columns);
    share_sums(columns, group);

    const at::Tensor pairs = relation.own_pairs();                               // [C, K]
    const at::Tensor present = pairs.narrow(0, tiles.first(), tiles.batch());  // the rows of `pairs` that belong to this rank
    const at::Tensor own = own_logits(image, texts, scale, tiles, present);               // [B, K]
    finish(rows, present, own, /*by_slot=*/kinds == tiles.captions(), negatives);
    const SoftmaxSums own_columns = of_own_captions(columns, tiles, present, own, negatives, group);
    if (negatives) add_further_of_negatives(tiles, scale, rows, columns, own_columns, group);
    columns.positives = pairs.to(image.scalar_type());
    if (further) columns.positives = columns.positives + columns.count;

    const at::Tensor counted = rows.positives > 0;
    at::Tensor row_count = counted.sum();
    group.all_reduce(row_count);
    const at::Tensor row_weight = counted.to(image.scalar_type()) * group.size() / row_count.clamp_min(1);
    const at::Tensor column_weight =
        pairs.to(image.scalar_type()) * group.size() / pairs.sum().clamp_min(1);
    const auto weights = [&](const SoftmaxSums& sums, const at::Tensor& weight) {
      const at::Tensor positive = weight / sums.positives.clamp_min(1);
      return GradientWeights{negatives ? positive * sums.pull : weight, positive};
    };
    const GradientWeights of_rows = weights(rows, row_weight), of_columns = weights(columns, column_weight);
    ctx->save_for_backward({image, texts, scale, rows.log_sum, columns.log_sum, of_rows.softmax, of_rows.positive,
                            of_columns.softmax, of_columns.positive});
    ctx->saved_data["negatives"] = negatives;
    ctx->saved_data["chunk"] = chunk;
    relation.save(ctx);
    save_group(ctx, group);
    const at::Tensor of_own = column_weight.narrow(0, tiles.first(), tiles.batch());
    return {(rows.term * row_weight).sum(), (own_columns.term * of_own).sum()};
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    TORCH_CHECK(!at::GradMode::is_enabled(), "the contrast of several captions has no second derivatives");
    const NoAutocast no_autocast;
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &image = saved[0], &texts = saved[1], &scale = saved[2], &row_sums = saved[3],
                     &column_sums = saved[4];
    const bool negatives = ctx->saved_data["negatives"].toBool();
    const ProcessGroup& group = saved_group(ctx);
    const CaptionTiles tiles(image, texts, CaptionRelation::saved(ctx), ctx->saved_data["chunk"].toInt(),
                             group.rank());
    const std::int64_t captions = tiles.captions();
    const GradientWeights of_rows{saved[5] * gradients[0], saved[6] * gradients[0]};
    // The incoming gradient may differ between ranks, so it is gathered.
    const at::Tensor of_ranks = group.all_gather(gradients[1].reshape({1}).contiguous());
    const at::Tensor of_images = of_ranks.repeat_interleave(tiles.batch()).unsqueeze(1);  // [C, 1]
    const GradientWeights of_columns{saved[7] * of_images, saved[8] * of_images};

    const at::Tensor image_gradient = at::zeros_like(image), text_gradient = at::zeros_like(texts);
    const at::Tensor scale_gradient = at::zeros({tiles.slots()}, image.options().dtype(at::kDouble));
    const at::Tensor part = at::zeros({tiles.slots(), tiles.width(), captions * image.size(1)}, image.options());
    const auto on_tile = [&](const Tile& tile) {
      const at::Tensor cosines = tiles.cosines(tile), logits = cosines * scale;
      const auto of_tile_rows = [&](const at::Tensor& each) { return tile.rows_of(each).unsqueeze(1); };
      const auto softmax_side = [&](const at::Tensor& log_sum, const GradientWeights& weight) {
        return (logits - log_sum).exp_().mul_(weight.softmax);
      };
      const at::Tensor row_sum = of_tile_rows(row_sums), column_sum = tile.columns_of(column_sums);
      const GradientWeights row{of_tile_rows(of_rows.softmax), of_tile_rows(of_rows.positive)},
          column{tile.columns_of(of_columns.softmax), tile.columns_of(of_columns.positive)};
      const CaptionRelation::Tile relation = tiles.relation_of(tile);
      const at::Tensor gradient = softmax_side(row_sum, row).add_(softmax_side(column_sum, column));
      if (negatives) {  // the softmax does not include the positives, so their gradient from the softmax is 0
        tiles.own_of(gradient, tile).fill_(0.0);
        fill_where(gradient, relation.further, 0.0);
      }
      // Computes the gradient of the positive terms of rows and columns, for the part of the tile that `pick` selects.
      const auto pulled = [&](const auto& pick) {
        const auto side = [&](const at::Tensor& log_sum, const at::Tensor& weight) {
          const at::Tensor picked = pick(weight.expand_as(logits));
          return negatives ? (pick(log_sum.expand_as(logits)) - pick(logits)).sigmoid_().mul_(picked) : picked;
        };
        return side(row_sum, row.positive) + side(column_sum, column.positive);
      };
      const auto own = [&](const at::Tensor& values) { return tiles.own_of(values, tile); };
      own(gradient).sub_(pulled(own));
      if (relation.further.defined())
        gradient.sub_(pulled([](const at::Tensor& all) { return all; }).masked_fill(relation.further.logical_not(), 0.0));
      fill_where(gradient, relation.left_out, 0.0);
      scale_gradient.select(0, tile.slot).add_((cosines * gradient).sum());
      const at::Tensor flat = gradient.mul_(scale).view({tile.rows, tile.columns * captions});
      tile.rows_of(image_gradient).addmm_(flat, tiles.texts_of(tile));
      tile.slot_of(part).view({tile.columns * captions, image.size(1)}).addmm_(flat.t(), tiles.images_of(tile));
    };
    tiles.walk(on_tile, [&](std::int64_t column, std::int64_t count) {
      text_gradient.view({tiles.images(), -1}).narrow(0, column, count).add_(part.narrow(1, 0, count).sum(0));
      part.zero_();
    });
    return {image_gradient, text_gradient, scale_gradient.sum().to(scale.scalar_type()), {}, {}, {}, {}};
  }

 private:
  static void add_logits(const CaptionTiles& tiles, const at::Tensor& scale, bool negatives, SoftmaxSums& rows,
                         SoftmaxSums& columns) {
    const bool by_slot = rows.log_sum.size(1) == tiles.captions();
    const at::Tensor part = at::full({tiles.slots(), tiles.width(), tiles.captions()}, kEmptySum, tiles.numbers());
    std::vector<at::Tensor> further_part;  // two tensors: sums and counts
    if (rows.further.defined()) further_part = {at::zeros_like(part), at::zeros_like(part)};
    const auto over_row = [&](const at::Tensor& values) {  // [rows, columns, K] -> [rows, K] or [rows, 1]
      return by_slot ? values.sum(1) : values.flatten(1).sum(1, /*keepdim=*/true);
    };
    const auto on_tile = [&](const Tile& tile) {
      const at::Tensor logits = tiles.cosines(tile).mul_(scale);
      const CaptionRelation::Tile relation = tiles.relation_of(tile);
      if (relation.further.defined()) {
        const at::Tensor sums = logits.masked_fill(relation.further.logical_not(), 0.0),
                         counts = relation.further.to(logits.scalar_type());
        tile.rows_of(rows.further).add_(over_row(sums));
        tile.rows_of(rows.count).add_(over_row(counts));
        tile.slot_of(further_part[0]).add_(sums.sum(0));
        tile.slot_of(further_part[1]).add_(counts.sum(0));
      }
      if (negatives) {
        tiles.own_of(logits, tile).fill_(kEmptySum);
        fill_where(logits, relation.further, kEmptySum);
      }
      fill_where(logits, relation.left_out, kEmptySum);
      add_exponentials(tile.rows_of(rows.log_sum),
                       by_slot ? logits.logsumexp(1) : logits.flatten(1).logsumexp(1, /*keepdim=*/true));
      add_exponentials(tile.slot_of(part), logits.logsumexp(0));
    };
    tiles.walk(on_tile, [&](std::int64_t column, std::int64_t count) {
      const auto of_block = [&](const at::Tensor& all) { return all.narrow(0, column, count); };
      add_exponentials(of_block(columns.log_sum), part.narrow(1, 0, count).logsumexp(0));
      part.fill_(kEmptySum);
      if (further_part.empty()) return;
      of_block(columns.further).add_(further_part[0].narrow(1, 0, count).sum(0));
      of_block(columns.count).add_(further_part[1].narrow(1, 0, count).sum(0));
      for (const at::Tensor& each : further_part) each.zero_();
    });
  }

  // Combines the contributions of all ranks' images to each caption's sums.
  static void share_sums(SoftmaxSums& columns, const ProcessGroup& group) {
    if (group.alone()) return;
    columns.log_sum = group.all_gather(columns.log_sum.unsqueeze(0)).logsumexp(0);
    for (at::Tensor* each : {&columns.further, &columns.count})
      if (each->defined()) group.all_reduce(*each);
  }

  static at::Tensor own_logits(const at::Tensor& image, const at::Tensor& texts, const at::Tensor& scale,
                               const CaptionTiles& tiles, const at::Tensor& present) {
    const at::Tensor own = texts.narrow(0, tiles.first() * tiles.captions(), tiles.batch() * tiles.captions())
                               .view({tiles.batch(), tiles.captions(), -1});
    return ((image.unsqueeze(1) * own).sum(2) * scale).masked_fill_(present.logical_not(), 0.0);
  }

  // Computes `positives`, `term` and, if `negatives` is true, `pull`. own [B, K] contains the logits of the images with their own captions
  // (0 where absent). The sums are [B, K] if `by_slot` is true, otherwise [B, 1].
  static void finish(SoftmaxSums& sums, const at::Tensor& present, const at::Tensor& own, bool by_slot,
                     bool negatives) {
    const auto over_row = [&](const at::Tensor& values) { return by_slot ? values : values.sum(1, /*keepdim=*/true); };
    sums.positives = over_row(present.to(own.scalar_type()));
    if (sums.count.defined()) sums.positives = sums.positives + sums.count;
    const at::Tensor number = sums.positives.clamp_min(1);
    if (negatives) {
      const at::Tensor gap = sums.log_sum - own, absent = present.logical_not();
      sums.pull = over_row(gap.sigmoid().masked_fill_(absent, 0.0));
      sums.term = over_row(soft_plus(gap).masked_fill_(absent, 0.0)) / number;
      return;
    }
    at::Tensor positive = over_row(own);
    if (sums.further.defined()) positive = positive + sums.further;
    sums.term = (sums.log_sum - positive / number).masked_fill_(sums.positives == 0, 0.0);
  }

  // Returns the sums and terms of this rank's captions. With the denominator `negatives`, also fills columns.pull for all captions.
  static SoftmaxSums of_own_captions(SoftmaxSums& columns, const CaptionTiles& tiles, const at::Tensor& present,
                                     const at::Tensor& own, bool negatives, const ProcessGroup& group) {
    const auto narrowed = [&](const at::Tensor& all) {
      return all.defined() ? all.narrow(0, tiles.first(), tiles.batch()) : all;
    };
    SoftmaxSums out;
    out.log_sum = narrowed(columns.log_sum);
    out.further = narrowed(columns.further);
    out.count = narrowed(columns.count);
    finish(out, present, own, /*by_slot=*/true, negatives);
    out.term.masked_fill_(present.logical_not(), 0.0);
    if (negatives) columns.pull = group.all_gather(out.pull.contiguous());
    return out;
  }

  // With the denominator `negatives`, adds the loss terms of duplicates that count as positives. These terms need the sum over the
  // negatives, which is complete only after all tiles have been processed.
  static void add_further_of_negatives(const CaptionTiles& tiles, const at::Tensor& scale, SoftmaxSums& rows,
                                       SoftmaxSums& columns, const SoftmaxSums& own_columns,
                                       const ProcessGroup& group) {
    if (!rows.further.defined()) return;
    const std::int64_t captions = tiles.captions();
    const at::Tensor part = at::zeros({tiles.slots(), tiles.width(), 2 * captions}, tiles.numbers());
    const at::Tensor both = at::zeros({tiles.images(), 2 * captions}, tiles.numbers());
    const auto on_tile = [&](const Tile& tile) {
      const at::Tensor logits = tiles.cosines(tile).mul_(scale);
      const at::Tensor others = tiles.relation_of(tile).further.logical_not();
      const auto of_positives = [&](const at::Tensor& values) { return values.masked_fill(others, 0.0); };
      const at::Tensor row_gap = tile.rows_of(rows.log_sum).unsqueeze(1) - logits,
                       column_gap = tile.columns_of(columns.log_sum) - logits;
      const auto over_row = [](const at::Tensor& values) { return values.flatten(1).sum(1, /*keepdim=*/true); };
      tile.rows_of(rows.pull).add_(over_row(of_positives(row_gap.sigmoid())));
      tile.rows_of(rows.term).add_(over_row(of_positives(soft_plus(row_gap))) / tile.rows_of(rows.positives).clamp_min(1));
      tile.slot_of(part).add_(at::cat({of_positives(soft_plus(column_gap)), of_positives(column_gap.sigmoid())}, 2).sum(0));
    };
    tiles.walk(on_tile, [&](std::int64_t column, std::int64_t count) {
      both.narrow(0, column, count).add_(part.narrow(1, 0, count).sum(0));
      part.zero_();
    });
    at::Tensor all = both;
    group.all_reduce(all);
    columns.pull.add_(all.slice(1, captions));
    own_columns.term.add_(all.narrow(0, tiles.first(), tiles.batch()).slice(1, 0, captions) /
                          own_columns.positives.clamp_min(1));
  }
};

class CaptionSigmoid : public torch::autograd::Function<CaptionSigmoid> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& image, const at::Tensor& texts,
                            const at::Tensor& scale, const at::Tensor& bias, const CaptionRelation& relation,
                            std::int64_t chunk, const ProcessGroup& group) {
    const NoAutocast no_autocast;
    const CaptionTiles tiles(image, texts, relation, chunk, group.rank());
    const at::Tensor sums = at::zeros({tiles.slots()}, image.options().dtype(at::kDouble));
    tiles.walk([&](const Tile& tile) {
      const at::Tensor against =
          against_label(tiles, tile, tiles.relation_of(tile), tiles.cosines(tile).mul_(scale).add_(bias));
      sums.select(0, tile.slot).sub_(at::log_sigmoid(against.neg_()).sum());
    });
    ctx->save_for_backward({image, texts, scale, bias});
    ctx->saved_data["chunk"] = chunk;
    relation.save(ctx);
    save_group(ctx, group);
    return sums.sum().to(image.scalar_type());
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    TORCH_CHECK(!at::GradMode::is_enabled(), "the sigmoid loss of several captions has no second derivatives");
    const NoAutocast no_autocast;
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &image = saved[0], &texts = saved[1], &scale = saved[2], &bias = saved[3];
    const CaptionTiles tiles(image, texts, CaptionRelation::saved(ctx), ctx->saved_data["chunk"].toInt(),
                             saved_group(ctx).rank());
    const std::int64_t captions = tiles.captions();
    const at::Tensor image_gradient = at::zeros_like(image), text_gradient = at::zeros_like(texts);
    const at::Tensor scale_gradient = at::zeros({tiles.slots()}, image.options().dtype(at::kDouble));
    const at::Tensor bias_gradient = at::zeros_like(scale_gradient);
    const at::Tensor part = at::zeros({tiles.slots(), tiles.width(), captions * image.size(1)}, image.options());
    const auto on_tile = [&](const Tile& tile) {
      const at::Tensor cosines = tiles.cosines(tile);
      const CaptionRelation::Tile relation = tiles.relation_of(tile);
      const at::Tensor share = against_label(tiles, tile, relation, (cosines * scale).add_(bias)).sigmoid_();
      negate_positives(tiles, tile, relation, share);
      share.mul_(gradients[0]);
      bias_gradient.select(0, tile.slot).add_(share.sum());
      scale_gradient.select(0, tile.slot).add_((cosines * share).sum());
      const at::Tensor flat = share.mul_(scale).view({tile.rows, tile.columns * captions});
      tile.rows_of(image_gradient).addmm_(flat, tiles.texts_of(tile));
      tile.slot_of(part).view({tile.columns * captions, image.size(1)}).addmm_(flat.t(), tiles.images_of(tile));
    };
    tiles.walk(on_tile, [&](std::int64_t column, std::int64_t count) {
      text_gradient.view({tiles.images(), -1}).narrow(0, column, count).add_(part.narrow(1, 0, count).sum(0));
      part.zero_();
    });
    return {image_gradient,
            text_gradient,
            scale_gradient.sum().to(scale.scalar_type()),
            bias_gradient.sum().to(bias.scalar_type()),
            {},
            {},
            {}};
  }

 private:
  static void negate_positives(const CaptionTiles& tiles, const Tile& tile, const CaptionRelation::Tile& relation,
                               const at::Tensor& values) {
    tiles.own_of(values, tile).neg_();
    if (relation.further.defined()) values.copy_(at::where(relation.further, -values, values));
  }

  // Multiplies the logits in place by -R, where R is the relation (1 for positives, -1 for negatives). Sets them to minus infinity
  // where R is 0.
  static at::Tensor against_label(const CaptionTiles& tiles, const Tile& tile, const CaptionRelation::Tile& relation,
                                  const at::Tensor& logits) {
    negate_positives(tiles, tile, relation, logits);
    fill_where(logits, relation.left_out, kEmptySum);
    return logits;
  }
};

std::int64_t chunk_or_usual(std::optional<std::int64_t> chunk, const at::Tensor& image, const CaptionRelation& relation) {
  if (chunk) return *chunk;
  constexpr std::int64_t kUsual = 64, kElements = 1 << 24;
  const std::int64_t batch = image.size(0);
  if (!image.is_cpu())
    return std::clamp<std::int64_t>(kElements / (relation.images() * relation.captions()), 1, batch);
  return std::clamp<std::int64_t>((batch + pool_threads() - 1) / pool_threads(), 1, kUsual);
}

}  // namespace

CaptionDenominator caption_denominator(const std::string& name) {
  if (name == "all") return CaptionDenominator::all;
  return name == "negatives" ? CaptionDenominator::negatives : CaptionDenominator::slot;
}

CaptionContrast caption_info_nce(const at::Tensor& image, const at::Tensor& texts, const at::Tensor& scale,
                                 CaptionDenominator denominator, const CaptionRelation& relation,
                                 std::optional<std::int64_t> chunk, const ProcessGroup& group) {
  const auto losses =
      CaptionInfoNce::apply(image, texts.flatten(0, 1), scale, static_cast<std::int64_t>(denominator), relation,
                            chunk_or_usual(chunk, image, relation), group);
  return {losses[0], losses[1]};
}

at::Tensor caption_sigmoid(const at::Tensor& image, const at::Tensor& texts, const at::Tensor& scale,
                           const at::Tensor& bias, const CaptionRelation& relation, std::optional<std::int64_t> chunk,
                           const ProcessGroup& group) {
  return CaptionSigmoid::apply(image, texts.flatten(0, 1), scale, bias, relation,
                               chunk_or_usual(chunk, image, relation), group);
}

}  // namespace tessera
