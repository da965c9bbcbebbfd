#pragma once

#include <tessera/objectives/caption_settings.h>
#include <tessera/objectives/contrastive_objective.h>

namespace tessera {

struct MultiPositiveSigmoidSettings {
  CaptionSettings captions;
  std::string divisor = "captions";
  double init_logit_scale = 2.302585092994046;  // log 10
  double init_logit_bias = -10;
};

template <class Visitor>
void fields(Visitor& v, MultiPositiveSigmoidSettings& s) {
  fields(v, s.captions);
  v("divisor", s.divisor, "what the sum over pairs is divided by: the number of present captions, or the number of images",
    config::one_of({"captions", "images"}));
  v("init_logit_scale", s.init_logit_scale, "initial value of the learned logit_scale, the log of 1/temperature");
  v("init_logit_bias", s.init_logit_bias, "initial value of the learned bias");
}

/// The sigmoid loss with K captions per image: each pair of image and caption is a separate binary decision (FLAIR's global term,
/// arXiv 2412.03561, eq. 5). With K = 1 it equals `siglip` (Zhai et al. 2023). The only term, `loss_sigmoid`, is the total.
class MultiPositiveSigmoid : public ContrastiveObjective {
 public:
  MultiPositiveSigmoid(const MultiPositiveSigmoidSettings& settings, const ObjectiveContext& context);
  Losses forward(const Features& features, const StepContext& context) override;
  Needs needs() const override { return settings_.captions.needs(); }

 private:
  MultiPositiveSigmoidSettings settings_;
  at::Tensor logit_bias_;
};

}  // namespace tessera
