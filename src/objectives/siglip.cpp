#include <limits>

#include <ATen/ATen.h>

#include "src/objectives/add_objective.h"
#include "src/objectives/pairs/matryoshka.h"
#include "src/objectives/pairs/negatives.h"
#include "src/objectives/pairs/pair_objective.h"
#include "src/objectives/pairs/tiled_losses.h"
#include <tessera/distributed/collectives.h>
#include <tessera/objectives/negative_texts.h>
#include <tessera/ops/numeric.h>

namespace tessera {
namespace {

struct SiglipSettings {
  PairSettings pairs;
  NegativeTextSettings negatives;
  double init_logit_scale = 2.302585092994046;  // log 10
  double init_logit_bias = -10.0;
  std::optional<MatryoshkaSettings> matryoshka;
};

void fields(auto& v, SiglipSettings& s) {
  fields(v, s.pairs);
  fields(v, s.negatives);
  v("init_logit_scale", s.init_logit_scale, "initial value of logit_scale, the log of the factor that cosines are multiplied by");
  v("init_logit_bias", s.init_logit_bias,
    "initial value of logit_bias; about minus the log of the number of negatives");
  v("matryoshka", s.matryoshka, kMatryoshkaHelp);
}

// Replaces the logits of matching pairs and left-out pairs, so that these pairs add nothing to the loss of the negatives.
constexpr double kNever = -std::numeric_limits<double>::infinity();

// Returns SigmoidLoss::others, computed at once.
at::Tensor composed_others(const PairSet& pairs, const at::Tensor& scale, const at::Tensor& bias) {
  const std::int64_t batch = pairs.images.size(0), first = pairs.group.rank() * batch;
  const at::Tensor logits = at::matmul(pairs.images, gather_rows(pairs.texts.squeeze(1), pairs.group).t()) * scale + bias;  // [B, C]
  const at::Tensor right = at::arange(first, first + batch, logits.options().dtype(at::kLong)).unsqueeze(1);
  at::Tensor wrong = logits.scatter(1, right, kNever);
  const at::Tensor left_out = pairs.relation.tile(first, batch, 0, logits.size(1), /*slot=*/0).left_out;
  if (left_out.defined()) wrong = wrong.masked_fill(left_out, kNever);
  return -at::log_sigmoid(-wrong).sum();
}

/// The sigmoid loss (Zhai et al. 2023, eq. 1): every image-text pair of the batch is a separate binary decision,
/// loss = -1/B sum_ij log sigmoid(z_ij (exp(logit_scale) cos_ij + logit_bias)), z = 1 on the diagonal, -1 elsewhere.
/// Terms `loss_positive` (the diagonal) and `loss_negative` (the rest); parameters `logit_scale` and `logit_bias`. Hard negatives
/// add the term `loss_hard_negative`, -1/B sum_bn log sigmoid(-(exp(logit_scale) cos_bn + logit_bias)) over the negatives n that
/// image b is compared with, and the statistic `negatives_per_image`, the mean number of present negatives.
class Siglip : public PairObjective<SiglipSettings> {
 public:
  Siglip(const SiglipSettings& settings, const ObjectiveContext& context)
      : PairObjective("siglip", {.image_global = true, .text_global = true}, settings, context, settings.init_logit_scale),
        matryoshka_(settings.matryoshka, "siglip", context) {
    matryoshka_.refuse("hard_negatives", settings.negatives.any());
    logit_bias_ = register_parameter("logit_bias", at::full({}, settings.init_logit_bias, at::kFloat));
  }

  Losses loss(const PairFeatures& pairs, const Features& features, const StepContext& context) override {
    const at::Tensor factor = scale(pairs.dtype()), bias = logit_bias_.to(pairs.dtype());
    const auto mean_of = [&](const at::Tensor& sum) { return pairs.relation.mean_of(sum, context.group); };
    const auto loss_of = [&](const at::Tensor& images, const at::Tensor& texts) -> Losses {
      const PairSet set{images, texts, pairs.relation, settings_.pairs.chunk, context.group};
      const SigmoidLoss sigmoid = set.chunk || matryoshka_
                                      ? tiled_sigmoid(set, factor, bias)
                                      : SigmoidLoss{own_sigmoid(set, factor, bias), composed_others(set, factor, bias)};
      const at::Tensor positive = mean_of(sigmoid.own), negative = mean_of(sigmoid.others);
      return {positive + negative, {{"loss_positive", positive}, {"loss_negative", negative}}, {}};
    };
    Losses losses = matryoshka_.loss(pairs.image_global, pairs.text_global.unsqueeze(1), context.group, loss_of);
    const NegativeTexts wrong = negative_texts(features, "siglip", settings_.negatives, pairs);
    if (!wrong.defined()) return losses;
    const at::Tensor hard =
        mean_of(negative_sigmoid_sums(unit_rows(pairs.image_global), factor, bias, wrong, settings_.pairs.chunk, context.group).sum());
    losses.add("loss_hard_negative", 1, hard);
    losses.statistics = {wrong.count()};
    return losses;
  }

  Needs needs() const override {
    Needs needs = PairObjective::needs();
    settings_.negatives.add_needs(needs);
    return needs;
  }

  std::vector<std::int64_t> nested_widths() const override { return matryoshka_.widths(); }

 private:
  Matryoshka matryoshka_;
  at::Tensor logit_bias_;
};

}  // namespace

void add_siglip(ObjectiveRegistry& list) {
  add_objective<Siglip, SiglipSettings>(list, "siglip", "a separate binary decision for every pair of the batch (Zhai et al. 2023)");
}

}  // namespace tessera
