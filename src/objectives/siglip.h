#pragma once

#include <tessera/objectives/contrastive_objective.h>
#include <tessera/objectives/negative_texts.h>

namespace tessera {

struct SiglipSettings {
  PairSettings pairs;
  NegativeTextSettings negatives;
  double init_logit_scale = 2.302585092994046;  // log 10
  double init_logit_bias = -10.0;
};

template <class Visitor>
void fields(Visitor& v, SiglipSettings& s) {
  fields(v, s.pairs);
  fields(v, s.negatives);
  v("init_logit_scale", s.init_logit_scale, "initial value of logit_scale, the log of the factor that cosines are multiplied by");
  v("init_logit_bias", s.init_logit_bias,
    "initial value of logit_bias; about minus the log of the number of negatives");
}

/// The sigmoid loss (Zhai et al. 2023, eq. 1): every image-text pair of the batch is a separate binary decision,
/// loss = -1/B sum_ij log sigmoid(z_ij (exp(logit_scale) cos_ij + logit_bias)), z = 1 on the diagonal, -1 elsewhere.
/// Terms `loss_positive` (the diagonal) and `loss_negative` (the rest); parameters `logit_scale` and `logit_bias`. Hard negatives
/// add the term `loss_hard_negative`, -1/B sum_bn log sigmoid(-(exp(logit_scale) cos_bn + logit_bias)) over the negatives n that
/// image b is compared with, and the statistic `negatives_per_image`, the mean number of present negatives.
class Siglip : public ContrastiveObjective {
 public:
  Siglip(const SiglipSettings& settings, const ObjectiveContext& context);
  Losses forward(const Features& features, const StepContext& context) override;
  Needs needs() const override;

 private:
  SiglipSettings settings_;
  at::Tensor logit_bias_;
};

}  // namespace tessera
