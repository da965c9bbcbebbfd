#include "src/objectives/pairs/tiled_losses.h"

#include <limits>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tessera/ops/numeric.h>

namespace tessera {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr double kNothing = -std::numeric_limits<double>::infinity();  // the logarithm of an empty sum, and the logit of no pair

// Returns log(1 + exp(x)).
at::Tensor soft_plus(const at::Tensor& x) {
  return -at::log_sigmoid(-x);
}

// Sets values[mask] = value; an undefined mask is false everywhere.
void fill_where(const at::Tensor& values, const at::Tensor& mask, double value) {
  if (mask.defined()) values.masked_fill_(mask, value);
}

// Sets total = log(exp(total) + exp(logarithms)).
void add_exponentials(at::Tensor total, const at::Tensor& logarithms) {
  at::logaddexp_out(total, total, logarithms);
}

// Pairs that are saved for the backward pass. Autograd saves the images and texts itself.
struct SavedPairs : torch::CustomClassHolder {
  PairSet pairs;  // without images and texts

  PairWalk walk(const at::Tensor& images, const at::Tensor& texts, const at::Tensor& scale, const at::Tensor& bias) const {
    PairSet all = pairs;
    all.images = images;
    all.texts = texts;
    return {std::move(all), scale, bias};
  }
};

PairSet without_embeddings(PairSet pairs) {
  pairs.images = pairs.texts = at::Tensor();
  return pairs;
}

// Functions on tensors [..., n] that hold sums over the logits of each softmax. Number 0 is the log-sum-exp. The others are plain sums.
struct LogitSums {
  static void clear(const at::Tensor& sums) {
    sums.zero_();
    sums.select(-1, 0).fill_(kNothing);
  }
  static void merge(const at::Tensor& total, const at::Tensor& parts) {
    add_exponentials(total.select(-1, 0), parts.select(-1, 0).logsumexp(0));
    if (total.size(-1) > 1) total.slice(-1, 1).add_(parts.slice(-1, 1).sum(0));
  }
  static at::Tensor none(at::IntArrayRef shape, const at::TensorOptions& options) {
    const at::Tensor sums = at::empty(shape, options);
    clear(sums);
    return sums;
  }
};

// The softmaxes of one direction, with one number for each in every tensor: [B, K] for texts, and for images with Denominator::slot;
// [B, 1] for images with another denominator.
struct Softmaxes {
  at::Tensor home;       // the mean cosine of the softmax's own positives. Logits are relative to it. Otherwise, the loss would be the
                         // same, but the gradient of the scale would be a difference of large numbers
  at::Tensor sums;       // [.., n], LogitSums. With smoothing, number 1 is the sum of the logits. With duplicates that are positives,
                         // number 1 is the sum of their logits, and number 2 is how many there are
  at::Tensor positives;  // number of positives, including such duplicates
  at::Tensor pull;       // only for Denominator::negatives: the sum of sigmoid(log_sum - l) over the positives' logits l
  at::Tensor term;       // the loss of each softmax
  at::Tensor weight;     // its weight in the mean, 1 or 0
  at::Tensor count;      // the number of softmaxes of all ranks whose weight is 1

  at::Tensor log_sum() const { return sums.select(-1, 0); }
  at::Tensor mean_of(const at::Tensor& sum, const ProcessGroup& group) const {
    return sum * group.size() / count.clamp_min(1);
  }
};

// InfoNCE of one batch.
struct InfoNce : SavedPairs {
  Denominator denominator = Denominator::slot;
  bool smooth = false, further = false;
  Softmaxes rows, columns;
  at::Tensor share, rest;    // [B, 1], with smoothing: the target of each negative, and what a pair's own target is above it
  at::Tensor further_share;  // [B, 1], share of the additional term in each image's softmax; undefined means 0

  bool negatives() const { return denominator == Denominator::negatives; }
  std::int64_t kinds() const { return further ? 3 : smooth ? 2 : 1; }

  void add_tile(const PairTile& tile, const at::Tensor& sums, const at::Tensor& logits, std::int64_t dim) const;
  void add_all(const PairWalk& walk, const at::Tensor& scale);
  void finish(Softmaxes& sides, const at::Tensor& own, const at::Tensor& present) const;
  void add_further_of_negatives(const PairWalk& walk);
  std::vector<at::Tensor> numbers_of(const Softmaxes& sides, const at::Tensor& weight) const;
  at::Tensor slope(const at::Tensor& logits, const PairTile& tile, const std::vector<at::Tensor>& numbers) const;
  at::Tensor own_pull(const Softmaxes& sides, const at::Tensor& weight, const at::Tensor& own) const;
};

// Adds a tile's logits, which it overwrites, to the sums of rows (dim = 1) or columns (dim = 0).
void InfoNce::add_tile(const PairTile& tile, const at::Tensor& sums, const at::Tensor& logits, std::int64_t dim) const {
  if (smooth) {
    fill_where(logits, tile.left_out, 0.0);
    sums.select(-1, 1).add_(logits.sum(dim));
  }
  if (tile.further.defined()) {
    sums.select(-1, 1).add_(logits.masked_fill(tile.further.logical_not(), 0.0).sum(dim));
    sums.select(-1, 2).add_(tile.further.sum(dim));
  }
  if (negatives()) {
    tile.own_of(logits).fill_(kNothing);
    fill_where(logits, tile.further, kNothing);
  }
  fill_where(logits, tile.left_out, kNothing);
  add_exponentials(sums.select(-1, 0), logits.logsumexp(dim));
}

void InfoNce::add_all(const PairWalk& walk, const at::Tensor& scale) {
  const at::TensorOptions options = rows.home.options();
  const std::int64_t batch = walk.batch(), texts = columns.home.size(1);
  rows.sums = LogitSums::none({batch, rows.home.size(1), kinds()}, options);
  at::Tensor others = at::full({batch, 1}, pairs.relation.images() - 1, options);  // the number of negatives of each image
  const auto on_tile = [&](const PairTile& tile, const at::Tensor& cosines) {
    if (smooth && tile.left_out.defined())
      tile.rows_of(others).sub_(tile.left_out.expand(cosines.sizes()).sum(1, /*keepdim=*/true));
    add_tile(tile, tile.of_rows(rows.sums).squeeze(1), (cosines - tile.of_rows(rows.home)).mul_(scale), 1);
    add_tile(tile, tile.sums, cosines.sub_(tile.number(0)).mul_(scale), 0);
  };
  columns.sums = walk.visit(columns.home.unsqueeze(2),
                            {LogitSums::none({batch, texts, kinds()}, options), LogitSums::merge, LogitSums::clear}, on_tile);
  // A text has the same number of negatives as its image, because the relation of plain pairs is symmetric.
  if (!smooth) return;
  share = pairs.relation.smoothing / others.clamp_min(1);
  rest = 1 - share * (others + 1);
}

// Computes `positives`, `pull` and `term`. own [B, K]: the logits of images with their own texts, relative to home. present [B, K]: true for
// such pairs that exist. Without Denominator::negatives, the sum of these logits is 0.
void InfoNce::finish(Softmaxes& sides, const at::Tensor& own, const at::Tensor& present) const {
  const at::Tensor log_sum = sides.log_sum();
  const auto over_own = [&](const at::Tensor& values) {
    return log_sum.size(1) == values.size(1) ? values : values.sum(1, /*keepdim=*/true);
  };
  sides.positives = over_own(present.to(own.scalar_type()));
  if (further) sides.positives = sides.positives + sides.sums.select(-1, 2);
  const at::Tensor number = sides.positives.clamp_min(1);
  if (negatives()) {
    const at::Tensor gap = log_sum - own, absent = present.logical_not();
    sides.pull = over_own(gap.sigmoid().masked_fill_(absent, 0.0));
    sides.term = over_own(soft_plus(gap).masked_fill_(absent, 0.0)) / number;
    return;
  }
  sides.term = log_sum;
  if (smooth) sides.term = sides.term - share * sides.sums.select(-1, 1);
  if (further) sides.term = sides.term - sides.sums.select(-1, 1) / number;
}

// With the denominator `negatives`, adds the loss terms of duplicates that count as positives. These terms need the sum over the
// negatives, which is complete only after all tiles have been processed.
void InfoNce::add_further_of_negatives(const PairWalk& walk) {
  const auto on_tile = [&](const PairTile& tile, const at::Tensor& cosines) {
    const at::Tensor others = tile.further.logical_not();
    const auto of_positives = [&](const at::Tensor& values) { return values.masked_fill(others, 0.0); };
    const at::Tensor row_gap = tile.of_rows(rows.log_sum()) - walk.logits(cosines - tile.of_rows(rows.home)),
                     column_gap = tile.number(1) - walk.logits(cosines.sub_(tile.number(0)));
    const at::Tensor terms = of_positives(soft_plus(row_gap)).sum(1, /*keepdim=*/true);
    tile.of_rows(rows.pull).add_(of_positives(row_gap.sigmoid()).sum(1, /*keepdim=*/true));
    tile.of_rows(rows.term).add_(terms / tile.of_rows(rows.positives).clamp_min(1));
    tile.sums.select(1, 0).add_(of_positives(column_gap.sigmoid()).sum(0));
    tile.sums.select(1, 1).add_(of_positives(soft_plus(column_gap)).sum(0));
  };
  const at::Tensor numbers = at::stack({columns.home, columns.log_sum()}, 2);
  const at::Tensor sums = walk.visit(numbers, TextSums::plain(at::zeros_like(numbers)), on_tile);
  columns.pull = columns.pull + sums.select(2, 0);
  columns.term = columns.term + sums.select(2, 1) / columns.positives.clamp_min(1);
}

// What slope() needs to know of each softmax: {home, log_sum, weight of the softmax, [weight of each positive], [share]}, all of the same
// shape. The weights are those of a softmax and of each of its positives in the gradient of the loss.
std::vector<at::Tensor> InfoNce::numbers_of(const Softmaxes& sides, const at::Tensor& weight) const {
  const at::Tensor positive = weight / sides.positives.clamp_min(1);
  std::vector<at::Tensor> out{sides.home, sides.log_sum(), negatives() ? positive * sides.pull : weight};
  if (further) out.push_back(positive);
  if (smooth) out.push_back(share);
  return out;
}

at::Tensor InfoNce::slope(const at::Tensor& logits, const PairTile& tile, const std::vector<at::Tensor>& numbers) const {
  const at::Tensor &log_sum = numbers[1], &weight = numbers[2];
  at::Tensor pull;  // of duplicates that are positives
  if (tile.further.defined()) {
    pull = negatives() ? (log_sum - logits).sigmoid_().mul_(numbers[3]) : numbers[3];
    pull = at::where(tile.further, pull, at::zeros({}, pull.options()));
  }
  const at::Tensor out = logits.sub_(log_sum).exp_();
  if (smooth) out.sub_(numbers[3]);
  out.mul_(weight);
  if (negatives()) {  // the softmax does not include the positives
    tile.own_of(out).fill_(0.0);
    fill_where(out, tile.further, 0.0);
  }
  if (pull.defined()) out.sub_(pull);
  fill_where(out, tile.left_out, 0.0);
  return out;
}

// Returns what the positives subtract from the derivatives of the images' own logits, [B, K] or [B, 1].
at::Tensor InfoNce::own_pull(const Softmaxes& sides, const at::Tensor& weight, const at::Tensor& own) const {
  const at::Tensor positive = weight / sides.positives.clamp_min(1);
  return negatives() ? positive * (sides.log_sum() - own).sigmoid() : positive;
}

class TiledInfoNce : public torch::autograd::Function<TiledInfoNce> {
 public:
  static variable_list forward(AutogradContext* ctx, const at::Tensor& images, const at::Tensor& texts, const at::Tensor& scale,
                               const std::optional<at::Tensor>& further, const c10::intrusive_ptr<InfoNce>& loss) {
    const NoAutocast no_autocast;
    const ProcessGroup& group = loss->pairs.group;
    const PairRelation& relation = loss->pairs.relation;
    const PairWalk walk = loss->walk(images, texts, scale, {});
    Softmaxes &rows = loss->rows, &columns = loss->columns;
    const at::Tensor pairs = relation.own_pairs(), present = relation.own_pairs(group);
    columns.home = walk.own_cosines().masked_fill_(present.logical_not(), 0.0);
    rows.home = columns.home;
    if (loss->denominator != Denominator::slot) rows.home = rows.home.sum(1, true) / present.sum(1, true).clamp_min(1);
    loss->add_all(walk, scale);

    if (further) {
      add_exponentials(rows.log_sum(), further->unsqueeze(1));
      loss->further_share = (further->unsqueeze(1) - rows.log_sum()).exp_();
    }
    loss->finish(rows, (columns.home - rows.home).mul_(scale), present);
    loss->finish(columns, at::zeros_like(columns.home), present);
    if (loss->further && loss->negatives()) loss->add_further_of_negatives(walk);

    const bool by_slot = rows.home.size(1) == pairs.size(1);
    const auto weigh = [&](Softmaxes& sides, const at::Tensor& counted, const at::Tensor& count) {
      sides.weight = counted.to(images.scalar_type());
      sides.count = count;
      sides.term = sides.term.masked_fill(counted.logical_not(), 0.0);
    };
    const at::Tensor counted = rows.positives > 0;
    at::Tensor count = (by_slot ? pairs : pairs.any(1)).sum();
    if (loss->further) {
      count = counted.sum();
      group.all_reduce(count);
    }
    weigh(rows, counted, count);
    weigh(columns, present, pairs.sum());
    ctx->save_for_backward({images, texts, scale});
    ctx->saved_data["loss"] = at::IValue::make_capsule(loss);
    return {rows.mean_of(rows.term.sum(), group), columns.mean_of(columns.term.sum(), group)};
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    TORCH_CHECK(!at::GradMode::is_enabled(), "the tiled contrastive loss has no second derivatives");
    const NoAutocast no_autocast;
    const auto saved = ctx->get_saved_variables();
    const auto loss = c10::static_intrusive_pointer_cast<InfoNce>(ctx->saved_data["loss"].toCapsule());
    const Softmaxes &rows = loss->rows, &columns = loss->columns;
    const PairRelation& relation = loss->pairs.relation;
    const ProcessGroup& group = loss->pairs.group;
    const PairWalk walk = loss->walk(saved[0], saved[1], saved[2], {});
    const at::Tensor row_weight = rows.mean_of(gradients[0], group) * rows.weight,
                     column_weight = columns.mean_of(gradients[1], group) * columns.weight;

    const at::Tensor own = (columns.home - rows.home).mul(saved[2]);  // [B, K]
    const at::Tensor row_pull = loss->own_pull(rows, row_weight, own);
    at::Tensor pull = row_pull + loss->own_pull(columns, column_weight, at::zeros_like(own));
    if (loss->smooth) pull = pull * loss->rest;
    at::Tensor of_further;
    if (loss->further_share.defined()) {
      of_further = loss->further_share * row_weight;
      pull = pull - of_further;
    }
    const at::Tensor absent = relation.own_pairs(group).logical_not();
    const std::vector<at::Tensor> of_rows = loss->numbers_of(rows, row_weight);
    const auto numbers = [&](std::int64_t side, const PairTile& tile) {
      std::vector<at::Tensor> out;
      for (std::size_t i = 0; i < of_rows.size(); ++i)
        out.push_back(side == 0 ? tile.of_rows(of_rows[i]) : tile.number(static_cast<std::int64_t>(i)));
      return out;
    };
    const PairWalk::Slopes slopes{
        .sides = 2,
        .origin = [&](std::int64_t side, const PairTile& tile) { return side == 0 ? tile.of_rows(rows.home) : tile.number(0); },
        .of = [&](std::int64_t side, const PairTile& tile,
                  const at::Tensor& logits) { return loss->slope(logits, tile, numbers(side, tile)); },
        .own_pull = pull.masked_fill(absent, 0.0)};
    const PairWalk::Gradients of = walk.gradients(at::stack(loss->numbers_of(columns, column_weight), 2), slopes);
    // The own logits are relative to their mean, so that their pull matters for the scale only where it differs between them.
    const at::Tensor of_pull = (row_pull * (columns.home - rows.home)).masked_fill(absent, 0.0).sum();
    return {of.images, of.texts, of.scale - of_pull, of_further.defined() ? of_further.squeeze(1) : of_further, {}};
  }
};

// The sum of -log sigmoid(-R (s + bias)) over images and the texts of others.
class TiledSigmoid : public torch::autograd::Function<TiledSigmoid> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& images, const at::Tensor& texts, const at::Tensor& scale,
                            const at::Tensor& bias, const c10::intrusive_ptr<SavedPairs>& pairs) {
    const NoAutocast no_autocast;
    const PairWalk walk = pairs->walk(images, texts, scale, bias);
    const at::Tensor sums = at::zeros({walk.workers()}, images.options().dtype(at::kDouble));
    walk.visit({}, {}, [&](const PairTile& tile, const at::Tensor& cosines) {
      const at::Tensor logits = against_label(tile, walk.logits(cosines));
      sums.select(0, tile.worker).sub_(at::log_sigmoid(logits.neg_()).sum());
    });
    ctx->save_for_backward({images, texts, scale, bias});
    ctx->saved_data["pairs"] = at::IValue::make_capsule(pairs);
    return sums.sum().to(images.scalar_type());
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    TORCH_CHECK(!at::GradMode::is_enabled(), "the tiled sigmoid loss has no second derivatives");
    const NoAutocast no_autocast;
    const auto saved = ctx->get_saved_variables();
    const auto pairs = c10::static_intrusive_pointer_cast<SavedPairs>(ctx->saved_data["pairs"].toCapsule());
    const auto slope = [&](std::int64_t /*side*/, const PairTile& tile, const at::Tensor& logits) {
      const at::Tensor share = against_label(tile, logits).sigmoid_();
      if (tile.further.defined()) share.copy_(at::where(tile.further, -share, share));
      return share.mul_(gradients[0]);
    };
    const auto origin = [](std::int64_t /*side*/, const PairTile& /*tile*/) { return at::Tensor(); };
    const PairWalk::Gradients of =
        pairs->walk(saved[0], saved[1], saved[2], saved[3]).gradients({}, {.sides = 1, .origin = origin, .of = slope, .own_pull = {}});
    return {of.images, of.texts, of.scale, of.bias, {}};
  }

 private:
  // Multiplies the logits in place by -R, where R is the relation (1 for positives, -1 for negatives). Sets them to minus infinity where R
  // is 0, and for the images' own texts.
  static at::Tensor against_label(const PairTile& tile, const at::Tensor& logits) {
    tile.own_of(logits).fill_(kNothing);
    if (tile.further.defined()) logits.copy_(at::where(tile.further, -logits, logits));
    fill_where(logits, tile.left_out, kNothing);
    return logits;
  }
};

}  // namespace

Denominator denominator_named(const std::string& name) {
  if (name == "all") return Denominator::all;
  return name == "negatives" ? Denominator::negatives : Denominator::slot;
}

Contrast tiled_info_nce(const PairSet& pairs, const at::Tensor& scale, Denominator denominator, const at::Tensor& further) {
  const PairRelation& relation = pairs.relation;
  TORCH_INTERNAL_ASSERT(relation.texts() == 1 || (relation.smoothing == 0 && !further.defined()));
  const auto loss = c10::make_intrusive<InfoNce>();
  loss->pairs = without_embeddings(pairs);
  loss->denominator = denominator;
  loss->smooth = relation.smoothing > 0;
  loss->further = relation.has_further();
  const variable_list losses = TiledInfoNce::apply(pairs.images, pairs.texts, scale,
                                                   further.defined() ? std::optional(further) : std::nullopt, loss);
  return Contrast::mean_of(losses[0], losses[1]);
}

SigmoidLoss tiled_sigmoid(const PairSet& pairs, const at::Tensor& scale, const at::Tensor& bias) {
  const auto saved = c10::make_intrusive<SavedPairs>();
  saved->pairs = without_embeddings(pairs);
  return {own_sigmoid(pairs, scale, bias), TiledSigmoid::apply(pairs.images, pairs.texts, scale, bias, saved)};
}

at::Tensor own_sigmoid(const PairSet& pairs, const at::Tensor& scale, const at::Tensor& bias) {
  const at::Tensor losses = -at::log_sigmoid((pairs.images.unsqueeze(1) * pairs.own_texts()).sum(2) * scale + bias);  // [B, K]
  return losses.masked_fill(pairs.relation.own_pairs(pairs.group).logical_not(), 0.0).sum();
}

}  // namespace tessera
