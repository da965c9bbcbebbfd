#include "src/objectives/multi_positive_sigmoid.h"

#include <ATen/ATen.h>

#include "src/objectives/common/caption_contrast.h"
#include "src/objectives/common/caption_features.h"
#include <tessera/distributed/collectives.h>
#include <tessera/ops/numeric.h>

namespace tessera {

MultiPositiveSigmoid::MultiPositiveSigmoid(const MultiPositiveSigmoidSettings& settings,
                                           const ObjectiveContext& context)
    : ContrastiveObjective(context, settings.init_logit_scale), settings_(settings) {
  logit_bias_ = register_parameter("logit_bias", at::full({}, settings.init_logit_bias, at::kFloat));
}

Losses MultiPositiveSigmoid::forward(const Features& features, const StepContext& context) {
  const NoAutocast no_autocast;
  const CaptionFeatures captions =
      caption_features(features, "multi_positive_sigmoid", settings_.captions, {.image_global = true}, context.group);
  const at::Tensor sum = caption_sigmoid(unit_rows(captions.image_global), gather_rows(unit_rows(captions.text_global), context.group),
                                         scale(captions.dtype()), logit_bias_.to(captions.dtype()), captions.relation,
                                         settings_.captions.chunk, context.group);
  const at::Tensor loss = settings_.divisor == "images"
                              ? sum / static_cast<double>(captions.images())
                              : captions.relation.mean_over_captions(sum, context.group);
  return {loss, {{"loss_sigmoid", loss}}, {}};
}

}  // namespace tessera
