#include "src/objectives/pairs/soft_targets.h"

#include <limits>
#include <memory>
#include <utility>

#include <ATen/ATen.h>

namespace tessera {
namespace {

constexpr double kEmptySum = -std::numeric_limits<double>::infinity();  // the logarithm of an empty sum, and the logit of no pair

// The sums of a softmax: {the student's log-sum-exp, the number of duplicates that are positives}, then three numbers for each teacher: its
// log-sum-exp, and the sums of p s and of p log p over its softmax p and the student's logits s.
constexpr std::int64_t kOwnSums = 2, kTeacherSums = 3;

std::int64_t teachers_in(const at::Tensor& sums) {
  return (sums.size(-1) - kOwnSums) / kTeacherSums;
}

at::Tensor of_teacher(const at::Tensor& sums, std::int64_t teacher) {
  return sums.narrow(-1, kOwnSums + kTeacherSums * teacher, kTeacherSums);
}

void clear_soft_sums(const at::Tensor& sums) {
  sums.zero_();
  sums.select(-1, 0).fill_(kEmptySum);
  for (std::int64_t k = 0; k < teachers_in(sums); ++k) of_teacher(sums, k).select(-1, 0).fill_(kEmptySum);
}

// Adds the entries of another part of a teacher's softmax. Both arguments are three numbers, [..., 3]. A part's p sums to 1 within the
// part, so that temperatures near 0 neither overflow nor divide by 0.
void merge_teacher(const at::Tensor& total, const at::Tensor& part) {
  const at::Tensor log_sum = at::logaddexp(total.select(-1, 0), part.select(-1, 0));
  at::Tensor student = at::zeros_like(log_sum), itself = at::zeros_like(log_sum);
  for (const at::Tensor* each : {&total, &part}) {
    const at::Tensor log_share = (each->select(-1, 0) - log_sum).nan_to_num_(0.0), share = log_share.exp();  // NaN where both are empty
    student.add_(share * each->select(-1, 1));
    itself.add_(share * (each->select(-1, 2) + log_share));
  }
  total.copy_(at::stack({log_sum, student, itself}, -1));
}

void merge_soft_sums(const at::Tensor& total, const at::Tensor& parts) {
  for (std::int64_t worker = 0; worker < parts.size(0); ++worker) {
    const at::Tensor part = parts[worker], own = total.select(-1, 0);
    own.copy_(at::logaddexp(own, part.select(-1, 0)));
    total.select(-1, 1).add_(part.select(-1, 1));
    for (std::int64_t k = 0; k < teachers_in(total); ++k) merge_teacher(of_teacher(total, k), of_teacher(part, k));
  }
}

// The softmaxes of one side, [B, K].
struct SoftSide {
  at::Tensor home;     // the cosine of an image and its own text, to which the student's logits are relative (see Softmaxes::home)
  at::Tensor sums;     // [B, K, n]
  at::Tensor counted;  // bool, true if the row counts in the mean
  at::Tensor count;    // the number of rows of all ranks that count
};

class SoftTargetLoss : public PairLoss {
 public:
  SoftTargetLoss(std::vector<std::int64_t> widths, SoftTargets kind) : widths_(std::move(widths)), kind_(kind) {
    float32_products = true;
  }

  std::vector<at::Tensor> losses(const PairWalk& walk, const std::optional<at::Tensor>& further) override;
  PairSlopes slopes(const PairWalk& walk, const std::vector<at::Tensor>& gradients) const override;

 private:
  using TeacherLogits = std::vector<at::Tensor>;  // [rows, columns] for each teacher
  TeacherLogits logits_of_teachers(const PairTile& tile) const;
  void add_tile(const PairTile& tile, int side, const at::Tensor& logits, const TeacherLogits& taught) const;
  at::Tensor slope(const PairTile& tile, int side, const at::Tensor& logits, const TeacherLogits& taught) const;
  at::Tensor mean(const SoftSide& side) const;
  // Returns a function that calls `body`(tile, side, logits, teachers' logits), for PairWalk. A worker sees the two sides of a tile one
  // after the other, so the teachers' logits are computed once for both.
  template <class Body>
  auto with_teachers(const PairWalk& walk, Body body) const {
    return [this, body, kept = std::make_shared<std::vector<TeacherLogits>>(static_cast<std::size_t>(walk.workers()))](
               const PairTile& tile, int side, const at::Tensor& logits) {
      TeacherLogits& taught = (*kept)[static_cast<std::size_t>(tile.worker)];
      if (side == 0) taught = logits_of_teachers(tile);
      return body(tile, side, logits, taught);
    };
  }

  std::vector<std::int64_t> widths_;
  SoftTargets kind_;
  SoftSide images_, texts_;
};

SoftTargetLoss::TeacherLogits SoftTargetLoss::logits_of_teachers(const PairTile& tile) const {
  TeacherLogits out;
  std::int64_t first = 0;
  for (const std::int64_t width : widths_) {
    out.push_back(at::matmul(tile.taught_images.narrow(1, first, width), tile.taught_texts.narrow(1, first, width).t()));
    first += width;
  }
  return out;
}

std::vector<at::Tensor> SoftTargetLoss::losses(const PairWalk& walk, const std::optional<at::Tensor>& /*further*/) {
  const PairRelation& relation = pairs.relation;
  const at::Tensor pairs_of_all = relation.own_pairs(), present = relation.own_pairs(pairs.group);
  const at::Tensor cosines = (walk.pairs().images.unsqueeze(1) * walk.pairs().own_texts()).sum(2);  // [B, K]
  images_.home = texts_.home = cosines.masked_fill(present.logical_not(), 0.0);
  for (SoftSide* side : {&images_, &texts_}) {
    side->sums = at::empty({walk.batch(), relation.texts(), kOwnSums + kTeacherSums * std::ssize(widths_)}, cosines.options());
    clear_soft_sums(side->sums);
  }
  const at::Tensor home = images_.home.unsqueeze(2);
  texts_.sums = walk.visit({home, home}, {{images_.sums, texts_.sums}, merge_soft_sums, clear_soft_sums},
                           with_teachers(walk, [this](const PairTile& tile, int side, const at::Tensor& logits,
                                                      const TeacherLogits& taught) { add_tile(tile, side, logits, taught); }));
  images_.counted = relation.has_further() ? present.logical_or(images_.sums.select(2, 1) > 0) : present;
  images_.count = relation.has_further() ? images_.counted.sum() : pairs_of_all.sum();
  if (relation.has_further()) pairs.group.all_reduce(images_.count);
  texts_.counted = present;
  texts_.count = pairs_of_all.sum();
  return {(mean(images_) + mean(texts_)) / 2};
}

// Adds a tile's logits, which it overwrites, to the sums.
void SoftTargetLoss::add_tile(const PairTile& tile, int side, const at::Tensor& logits, const TeacherLogits& taught) const {
  const std::int64_t dim = 1 - side;
  const at::Tensor& sums = tile.sums[side];
  const auto fill = [&](const at::Tensor& values, double value) {
    if (tile.left_out.defined()) values.masked_fill_(tile.left_out, value);
  };
  if (tile.further.defined()) sums.select(1, 1).add_(tile.further.sum(dim));
  fill(logits, 0.0);  // entries that are left out have p = 0, and add nothing to the sums of p s
  for (std::size_t k = 0; k < taught.size(); ++k) {
    const at::Tensor logit = tile.left_out.defined() ? taught[k].masked_fill(tile.left_out, kEmptySum) : taught[k];
    const at::Tensor log_sum = logit.logsumexp(dim), log_share = logit - log_sum.unsqueeze(dim), share = log_share.exp();
    fill(log_share, 0.0);
    fill(share, 0.0);  // it is NaN if the whole row is left out
    merge_teacher(of_teacher(sums, static_cast<std::int64_t>(k)),
                  at::stack({log_sum, (share * logits).sum(dim), (share * log_share).sum(dim)}, -1));
  }
  fill(logits, kEmptySum);
  const at::Tensor own = sums.select(1, 0);
  own.copy_(at::logaddexp(own, logits.logsumexp(dim)));
}

at::Tensor SoftTargetLoss::mean(const SoftSide& side) const {
  at::Tensor term = side.sums.select(2, 0);
  for (std::int64_t k = 0; k < std::ssize(widths_); ++k) {
    const at::Tensor taught = of_teacher(side.sums, k);
    const at::Tensor of_one = kind_ == SoftTargets::divergence ? taught.select(2, 2) - taught.select(2, 1) : -taught.select(2, 1);
    term = term + of_one / static_cast<double>(widths_.size());
  }
  return term.masked_fill(side.counted.logical_not(), 0.0).sum() * pairs.group.size() / side.count.clamp_min(1);
}

PairSlopes SoftTargetLoss::slopes(const PairWalk& walk, const std::vector<at::Tensor>& gradients) const {
  const auto numbers_of = [&](const SoftSide& side) {  // {home, log-sum-exp, weight of the row, the teachers' log-sum-exps}
    const at::Tensor weight = side.counted * (gradients[0] / 2 * pairs.group.size() / side.count.clamp_min(1));
    std::vector<at::Tensor> out{side.home, side.sums.select(2, 0), weight};
    for (std::int64_t k = 0; k < std::ssize(widths_); ++k) out.push_back(of_teacher(side.sums, k).select(2, 0));
    return at::stack(out, 2);
  };
  PairSlopes out;
  out.numbers = {numbers_of(images_), numbers_of(texts_)};
  // The derivatives of a row sum to 0, so its home, which is subtracted from all of its cosines, gets none.
  out.of = with_teachers(walk, [this](const PairTile& tile, int side, const at::Tensor& logits, const TeacherLogits& taught) {
    return slope(tile, side, logits, taught);
  });
  return out;
}

// Returns weight (q - mean of the teachers' p).
at::Tensor SoftTargetLoss::slope(const PairTile& tile, int side, const at::Tensor& logits, const TeacherLogits& taught) const {
  const at::Tensor out = logits.sub_(tile.number(side, 1)).exp_();
  for (std::size_t k = 0; k < taught.size(); ++k)
    out.sub_((taught[k] - tile.number(side, 3 + static_cast<std::int64_t>(k))).exp_(), 1.0 / static_cast<double>(taught.size()));
  out.mul_(tile.number(side, 2));
  if (tile.left_out.defined()) out.masked_fill_(tile.left_out, 0.0);
  return out;
}

}  // namespace

at::Tensor tiled_soft_targets(const PairSet& pairs, const at::Tensor& scale, const std::vector<std::int64_t>& widths, SoftTargets kind) {
  return tiled_losses(c10::make_intrusive<SoftTargetLoss>(widths, kind), pairs, scale)[0];
}

}  // namespace tessera
