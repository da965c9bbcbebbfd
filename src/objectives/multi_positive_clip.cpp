#include "src/objectives/multi_positive_clip.h"

#include <ATen/ATen.h>

#include "src/objectives/common/caption_contrast.h"
#include "src/objectives/common/caption_features.h"
#include <tessera/distributed/collectives.h>
#include <tessera/ops/numeric.h>

namespace tessera {

std::map<std::string, double> MultiPositiveClip::chance_levels(std::int64_t pairs) const {
  if (settings_.denominator != "slot") return contrast_chance({"loss_t2i"}, pairs);
  return contrast_chance({"loss_i2t", "loss_t2i"}, pairs);
}

Losses MultiPositiveClip::forward(const Features& features, const StepContext& context) {
  const NoAutocast no_autocast;
  const CaptionFeatures captions =
      caption_features(features, "multi_positive_clip", settings_.captions, {.image_global = true}, context.group);
  const CaptionContrast contrast = caption_info_nce(
      unit_rows(captions.image_global), gather_rows(unit_rows(captions.text_global), context.group), scale(captions.dtype()),
      caption_denominator(settings_.denominator), captions.relation, settings_.captions.chunk, context.group);
  return {(contrast.i2t + contrast.t2i) / 2, {{"loss_i2t", contrast.i2t}, {"loss_t2i", contrast.t2i}}, {}};
}

}  // namespace tessera
