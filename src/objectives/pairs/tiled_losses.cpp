#include "src/objectives/pairs/tiled_losses.h"

#include <limits>
#include <utility>

#include <ATen/ATen.h>

namespace tessera {
namespace {

constexpr double kNothing =
    -std::numeric_limits<double>::infinity();  // the logarithm of an empty sum, and the logit of no pair

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

// Functions on tensors [..., n] that hold sums over the logits of each softmax. Number 0 is the log-sum-exp. The others are plain sums.
void clear_logit_sums(const at::Tensor& sums) {
  sums.zero_();
  sums.select(-1, 0).fill_(kNothing);
}

void merge_logit_sums(const at::Tensor& total, const at::Tensor& parts) {
  add_exponentials(total.select(-1, 0), parts.select(-1, 0).logsumexp(0));
  if (total.size(-1) > 1) total.slice(-1, 1).add_(parts.slice(-1, 1).sum(0));
}

// Returns the sum over an image's slots, or the values [B, K] themselves if the image has a softmax for each slot.
at::Tensor over_slots(const at::Tensor& values, std::int64_t softmaxes) {
  return values.size(1) == softmaxes ? values : values.sum(1, /*keepdim=*/true);
}

// The softmaxes of one side. Every tensor has one number for each softmax: [B, K] for texts, and for images with Denominator::slot; [B, 1]
// for images with another denominator.
struct Softmaxes {
  // The mean cosine of the softmax's own positives. Logits are relative to it. Otherwise, the loss would be the same, but the gradient of
  // the scale would be a difference of large numbers.
  at::Tensor home;
  // [.., n]: the log-sum-exp. With smoothing, also the sum of the logits and the number of left-out entries. With duplicates that are
  // positives, also the sum of their logits and their number.
  at::Tensor sums;
  at::Tensor positives;  // number of positives, including such duplicates
  // With smoothing: the target of each negative, and by how much the target of the own positive is above it.
  at::Tensor share, rest;
  at::Tensor pull;     // only for Denominator::negatives: the sum of sigmoid(log_sum - l) over the positives' logits l
  at::Tensor term;     // the loss
  at::Tensor counted;  // bool, true if the loss counts in the mean
  at::Tensor count;    // the number of softmaxes of all ranks that count

  at::Tensor log_sum() const { return sums.select(-1, 0); }
  at::Tensor mean_of(const at::Tensor& sum, const ProcessGroup& group) const {
    return sum * group.size() / count.clamp_min(1);
  }
  // Returns the mean of `term`, which it clears, because the backward pass does not need it.
  at::Tensor loss(const ProcessGroup& group) {
    return mean_of(std::exchange(term, {}).masked_fill(counted.logical_not(), 0.0).sum(), group);
  }
};

class InfoNce : public PairLoss {
 public:
  InfoNce(Denominator denominator, const PairRelation& relation)
      : denominator_(denominator), smooth_(relation.smoothing > 0), further_(relation.has_further()) {}

  std::vector<at::Tensor> losses(const PairWalk& walk, const std::optional<at::Tensor>& further) override;
  PairSlopes slopes(const PairWalk& walk, const std::vector<at::Tensor>& gradients) const override;

 private:
  bool negatives() const { return denominator_ == Denominator::negatives; }
  void add_tile(const PairTile& tile, int side, const at::Tensor& logits) const;
  void finish(Softmaxes& side, const at::Tensor& own, const at::Tensor& present) const;
  void add_further_of_negatives(const PairWalk& walk);
  at::Tensor numbers_of(const Softmaxes& side, const at::Tensor& weight) const;
  at::Tensor slope(const PairTile& tile, int side, const at::Tensor& logits) const;
  at::Tensor own_pull(const Softmaxes& side, const at::Tensor& own, const at::Tensor& weight) const;
  // Returns the logits of the images with their own texts, relative to a side's home, [B, K].
  at::Tensor own_logits(const PairWalk& walk, const Softmaxes& side) const {
    return walk.logits_of(texts_.home - side.home);
  }

  Denominator denominator_;
  bool smooth_, further_;
  Softmaxes images_, texts_;
  at::Tensor further_share_;  // [B, 1], share of the additional term in each image's softmax; undefined means 0
};

std::vector<at::Tensor> InfoNce::losses(const PairWalk& walk, const std::optional<at::Tensor>& further) {
  const at::Tensor pairs_of_all = pairs.relation.own_pairs(), present = pairs.relation.own_pairs(pairs.group);
  const at::Tensor cosines = (walk.pairs().images.unsqueeze(1) * walk.pairs().own_texts()).sum(2);  // [B, K]
  images_.home = texts_.home = cosines.masked_fill(present.logical_not(), 0.0);
  const bool by_slot = denominator_ == Denominator::slot;
  if (!by_slot) images_.home = texts_.home.sum(1, /*keepdim=*/true) / present.sum(1, /*keepdim=*/true).clamp_min(1);
  for (Softmaxes* side : {&images_, &texts_}) {
    side->sums = at::empty({walk.batch(), side->home.size(1), smooth_ || further_ ? 3 : 1}, cosines.options());
    clear_logit_sums(side->sums);
  }
  texts_.sums =
      walk.visit({images_.home.unsqueeze(2), texts_.home.unsqueeze(2)},
                 {{images_.sums, texts_.sums}, merge_logit_sums, clear_logit_sums},
                 [this](const PairTile& tile, int side, const at::Tensor& logits) { add_tile(tile, side, logits); });
  if (further) {
    add_exponentials(images_.log_sum(), further->unsqueeze(1));
    further_share_ = (further->unsqueeze(1) - images_.log_sum()).exp_();
  }
  finish(images_, own_logits(walk, images_), present);
  finish(texts_, own_logits(walk, texts_), present);
  if (further_ && negatives()) add_further_of_negatives(walk);

  images_.counted = images_.positives > 0;
  images_.count = further_ ? images_.counted.sum() : (by_slot ? pairs_of_all : pairs_of_all.any(1)).sum();
  if (further_) pairs.group.all_reduce(images_.count);
  texts_.counted = present;
  texts_.count = pairs_of_all.sum();
  return {images_.loss(pairs.group), texts_.loss(pairs.group)};
}

// Adds a tile's logits, which it overwrites, to the sums.
void InfoNce::add_tile(const PairTile& tile, int side, const at::Tensor& logits) const {
  const std::int64_t dim = 1 - side;
  const auto add = [&](std::int64_t index, const at::Tensor& values) {
    tile.sums[side].select(1, index).add_(values.sum(dim));
  };
  if (smooth_) {
    fill_where(logits, tile.left_out, 0.0);
    add(1, logits);
    if (tile.left_out.defined()) add(2, tile.left_out.expand(logits.sizes()));
  }
  if (tile.further.defined()) {
    add(1, logits.masked_fill(tile.further.logical_not(), 0.0));
    add(2, tile.further);
  }
  if (negatives()) {
    tile.own_of(logits).fill_(kNothing);
    fill_where(logits, tile.further, kNothing);
  }
  fill_where(logits, tile.left_out, kNothing);
  add_exponentials(tile.sums[side].select(1, 0), logits.logsumexp(dim));
}

// Computes `positives`, `share`, `rest`, `pull` and `term`. own [B, K]: own_logits(), whose sum over a softmax is 0. present [B, K]: true
// for the images' own texts that exist.
void InfoNce::finish(Softmaxes& side, const at::Tensor& own, const at::Tensor& present) const {
  const at::Tensor log_sum = side.log_sum(), absent = present.logical_not();
  side.positives = over_slots(present.to(log_sum.scalar_type()), log_sum.size(1));
  if (further_) side.positives = side.positives + side.sums.select(2, 2);
  const at::Tensor number = side.positives.clamp_min(1);
  side.term = log_sum;
  if (negatives()) {
    const at::Tensor gap = log_sum - own;
    side.pull = over_slots(gap.sigmoid().masked_fill_(absent, 0.0), log_sum.size(1));
    side.term = over_slots(soft_plus(gap).masked_fill_(absent, 0.0), log_sum.size(1)) / number;
  } else if (further_) {
    side.term = log_sum - side.sums.select(2, 1) / number;
  } else if (smooth_) {
    const at::Tensor others = pairs.relation.images() - 1 - side.sums.select(2, 2);
    side.share = pairs.relation.smoothing / others.clamp_min(1);
    side.rest = 1 - side.share * (others + 1);
    side.term = log_sum - side.share * side.sums.select(2, 1);
  }
}

// With the denominator `negatives`, adds the loss terms of duplicates that count as positives. These terms need the sum over the
// negatives, which is complete only after all tiles have been processed.
void InfoNce::add_further_of_negatives(const PairWalk& walk) {
  const auto numbers = [](const Softmaxes& side) { return at::stack({side.home, side.log_sum()}, 2); };
  const PairNumbers given{numbers(images_), numbers(texts_)};
  const PairNumbers zeros{at::zeros_like(given.images), at::zeros_like(given.texts)};
  const auto visit = [](const PairTile& tile, int side, const at::Tensor& logits) {
    const at::Tensor gap = tile.number(side, 1) - logits, others = tile.further.logical_not();
    tile.sums[side].select(1, 0).add_(gap.sigmoid().masked_fill_(others, 0.0).sum(1 - side));
    tile.sums[side].select(1, 1).add_(soft_plus(gap).masked_fill_(others, 0.0).sum(1 - side));
  };
  const at::Tensor of_texts = walk.visit(given, PairSums::plain(zeros), visit);
  const auto add = [](Softmaxes& side, const at::Tensor& sums) {
    side.pull = side.pull + sums.select(2, 0);
    side.term = side.term + sums.select(2, 1) / side.positives.clamp_min(1);
  };
  add(images_, zeros.images);
  add(texts_, of_texts);
}

PairSlopes InfoNce::slopes(const PairWalk& walk, const std::vector<at::Tensor>& gradients) const {
  const auto weight_of = [&](const Softmaxes& side, const at::Tensor& gradient) {
    return side.mean_of(gradient, pairs.group) * side.counted;
  };
  const at::Tensor image_weight = weight_of(images_, gradients[0]), text_weight = weight_of(texts_, gradients[1]);
  PairSlopes out;
  out.numbers = {numbers_of(images_, image_weight), numbers_of(texts_, text_weight)};
  out.of = [this](const PairTile& tile, int side, const at::Tensor& logits) { return slope(tile, side, logits); };

  const at::Tensor absent = pairs.relation.own_pairs(pairs.group).logical_not();
  const at::Tensor pull = own_pull(images_, own_logits(walk, images_), image_weight);
  out.own_pull = pull + own_pull(texts_, own_logits(walk, texts_), text_weight);
  if (further_share_.defined()) {
    out.of_further = (further_share_ * image_weight).squeeze(1);
    out.own_pull = out.own_pull - further_share_ * image_weight;
  }
  out.own_pull = out.own_pull.masked_fill(absent, 0.0);
  // The own cosines are relative to their mean, so that their pull matters for the scale only where it differs between them.
  out.of_scale = -(pull * (texts_.home - images_.home)).masked_fill(absent, 0.0).sum();
  return out;
}

// Returns what slope() needs: {home, log_sum, weight of the softmax, [weight of each positive | share]}. The weights are those in the
// gradient of the loss.
at::Tensor InfoNce::numbers_of(const Softmaxes& side, const at::Tensor& weight) const {
  const at::Tensor positive = weight / side.positives.clamp_min(1);
  std::vector<at::Tensor> out{side.home, side.log_sum(), negatives() ? positive * side.pull : weight};
  if (further_) out.push_back(positive);
  if (smooth_) out.push_back(side.share);
  return at::stack(out, 2);
}

at::Tensor InfoNce::slope(const PairTile& tile, int side, const at::Tensor& logits) const {
  const at::Tensor log_sum = tile.number(side, 1);
  at::Tensor pull;  // of duplicates that are positives
  if (tile.further.defined()) {
    pull = tile.number(side, 3);
    if (negatives()) pull = (log_sum - logits).sigmoid_().mul_(pull);
    pull = at::where(tile.further, pull, at::zeros({}, pull.options()));
  }
  const at::Tensor out = logits.sub_(log_sum).exp_();
  if (smooth_) out.sub_(tile.number(side, 3));
  out.mul_(tile.number(side, 2));
  if (negatives()) {  // the softmax does not include the positives
    tile.own_of(out).fill_(0.0);
    fill_where(out, tile.further, 0.0);
  }
  if (pull.defined()) out.sub_(pull);
  fill_where(out, tile.left_out, 0.0);
  return out;
}

// Returns what the positives subtract from the derivatives of the images' own logits, [B, K] or [B, 1].
at::Tensor InfoNce::own_pull(const Softmaxes& side, const at::Tensor& own, const at::Tensor& weight) const {
  if (smooth_) return weight * side.rest;
  const at::Tensor positive = weight / side.positives.clamp_min(1);
  return negatives() ? positive * (side.log_sum() - own).sigmoid() : positive;
}

// The sum of -log sigmoid(R (s + bias)) over images and the texts of others, whose relation is R.
class Sigmoid : public PairLoss {
 public:
  std::vector<at::Tensor> losses(const PairWalk& walk, const std::optional<at::Tensor>& /*further*/) override {
    const at::Tensor sums = at::zeros({walk.workers()}, walk.pairs().images.options().dtype(at::kDouble));
    walk.visit({}, {}, [&](const PairTile& tile, int /*side*/, const at::Tensor& logits) {
      sums.select(0, tile.worker).sub_(at::log_sigmoid(against_label(tile, logits).neg_()).sum());
    });
    return {sums.sum().to(walk.pairs().images.scalar_type())};
  }

  PairSlopes slopes(const PairWalk& /*walk*/, const std::vector<at::Tensor>& gradients) const override {
    PairSlopes out;
    out.of = [weight = gradients[0]](const PairTile& tile, int /*side*/, const at::Tensor& logits) {
      const at::Tensor share = against_label(tile, logits).sigmoid_();
      if (tile.further.defined()) share.copy_(at::where(tile.further, -share, share));
      return share.mul_(weight);
    };
    return out;
  }

 private:
  // Multiplies the logits in place by -R. Sets them to minus infinity where R is 0, and for the images' own texts.
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

Contrast tiled_info_nce(const PairSet& pairs, const at::Tensor& scale, Denominator denominator,
                        const at::Tensor& further) {
  TORCH_INTERNAL_ASSERT(pairs.relation.texts() == 1 || !further.defined());
  const auto losses =
      tiled_losses(c10::make_intrusive<InfoNce>(denominator, pairs.relation), pairs, scale, {}, further);
  return Contrast::mean_of(losses[0], losses[1]);
}

SigmoidLoss tiled_sigmoid(const PairSet& pairs, const at::Tensor& scale, const at::Tensor& bias) {
  return {own_sigmoid(pairs, scale, bias), tiled_losses(c10::make_intrusive<Sigmoid>(), pairs, scale, bias)[0]};
}

at::Tensor own_sigmoid(const PairSet& pairs, const at::Tensor& scale, const at::Tensor& bias) {
  const at::Tensor losses =
      -at::log_sigmoid((pairs.images.unsqueeze(1) * pairs.own_texts()).sum(2) * scale + bias);  // [B, K]
  return losses.masked_fill(pairs.relation.own_pairs(pairs.group).logical_not(), 0.0).sum();
}

}  // namespace tessera
