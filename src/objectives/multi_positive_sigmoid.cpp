#include <ATen/ATen.h>

#include "src/objectives/add_objective.h"
#include "src/objectives/pairs/features.h"
#include "src/objectives/pairs/matryoshka.h"
#include "src/objectives/pairs/tiled_losses.h"
#include <tessera/objectives/caption_settings.h>
#include <tessera/objectives/contrastive_objective.h>
#include <tessera/ops/numeric.h>

namespace tessera {
namespace {

struct MultiPositiveSigmoidSettings {
  CaptionSettings captions;
  std::string divisor = "captions";
  double init_logit_scale = 2.302585092994046;  // log 10
  double init_logit_bias = -10;
  std::optional<MatryoshkaSettings> matryoshka;
};

void fields(auto& v, MultiPositiveSigmoidSettings& s) {
  fields(v, s.captions);
  v("divisor", s.divisor, "what the sum over pairs is divided by: the number of present captions, or the number of images",
    config::one_of({"captions", "images"}));
  v("init_logit_scale", s.init_logit_scale, "initial value of the learned logit_scale, the log of 1/temperature");
  v("init_logit_bias", s.init_logit_bias, "initial value of the learned bias");
  v("matryoshka", s.matryoshka, kMatryoshkaHelp);
}

/// The sigmoid loss with K captions per image: each pair of image and caption is a separate binary decision (FLAIR's global term,
/// arXiv 2412.03561, eq. 5). With K = 1 it equals `siglip` (Zhai et al. 2023). The only term, `loss_sigmoid`, is the total.
class MultiPositiveSigmoid : public ContrastiveObjective {
 public:
  MultiPositiveSigmoid(const MultiPositiveSigmoidSettings& settings, const ObjectiveContext& context)
      : ContrastiveObjective(context, settings.init_logit_scale),
        settings_(settings),
        matryoshka_(settings.matryoshka, "multi_positive_sigmoid", context) {
    logit_bias_ = register_parameter("logit_bias", at::full({}, settings.init_logit_bias, at::kFloat));
  }

  Losses forward(const Features& features, const StepContext& context) override {
    const NoAutocast no_autocast;
    const PairFeatures captions =
        caption_features(features, "multi_positive_sigmoid", settings_.captions, {.image_global = true}, context.group);
    const auto loss_of = [&](const at::Tensor& images, const at::Tensor& texts) -> Losses {
      const SigmoidLoss sigmoid = tiled_sigmoid({images, texts, captions.relation, settings_.captions.chunk, context.group},
                                                scale(captions.dtype()), logit_bias_.to(captions.dtype()));
      const at::Tensor sum = sigmoid.own + sigmoid.others;
      const at::Tensor loss = settings_.divisor == "images" ? sum / static_cast<double>(captions.present.size(0))
                                                            : captions.relation.mean_of(sum, context.group);
      return {loss, {{"loss_sigmoid", loss}}, {}};
    };
    return matryoshka_.loss(captions.image_global, captions.text_global, context.group, loss_of);
  }

  Needs needs() const override { return settings_.captions.needs(); }
  std::vector<std::int64_t> nested_widths() const override { return matryoshka_.widths(); }

 private:
  MultiPositiveSigmoidSettings settings_;
  Matryoshka matryoshka_;
  at::Tensor logit_bias_;
};

}  // namespace

void add_multi_positive_sigmoid(ObjectiveRegistry& list) {
  add_objective<MultiPositiveSigmoid, MultiPositiveSigmoidSettings>(list, "multi_positive_sigmoid",
      "a separate binary decision for every image-caption pair, with several captions per image");
}

}  // namespace tessera
