#include "src/objectives/multi_positive_sigmoid.h"

#include <ATen/ATen.h>

#include "src/objectives/pairs/tiled_losses.h"
#include "src/objectives/pairs/features.h"
#include <tessera/ops/numeric.h>

namespace tessera {

MultiPositiveSigmoid::MultiPositiveSigmoid(const MultiPositiveSigmoidSettings& settings,
                                           const ObjectiveContext& context)
    : ContrastiveObjective(context, settings.init_logit_scale), settings_(settings) {
  logit_bias_ = register_parameter("logit_bias", at::full({}, settings.init_logit_bias, at::kFloat));
}

Losses MultiPositiveSigmoid::forward(const Features& features, const StepContext& context) {
  const NoAutocast no_autocast;
  const PairFeatures captions =
      caption_features(features, "multi_positive_sigmoid", settings_.captions, {.image_global = true}, context.group);
  const SigmoidLoss sigmoid = tiled_sigmoid({unit_rows(captions.image_global), unit_rows(captions.text_global), captions.relation,
                                             settings_.captions.chunk, context.group},
                                            scale(captions.dtype()), logit_bias_.to(captions.dtype()));
  const at::Tensor sum = sigmoid.own + sigmoid.others;
  const at::Tensor loss = settings_.divisor == "images" ? sum / static_cast<double>(captions.present.size(0))
                                                        : captions.relation.mean_of(sum, context.group);
  return {loss, {{"loss_sigmoid", loss}}, {}};
}

}  // namespace tessera
