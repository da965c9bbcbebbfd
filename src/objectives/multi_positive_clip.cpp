#include "src/objectives/multi_positive_clip.h"

#include <ATen/ATen.h>

#include "src/objectives/pairs/tiled_losses.h"
#include "src/objectives/pairs/features.h"
#include <tessera/ops/numeric.h>

namespace tessera {

std::map<std::string, double> MultiPositiveClip::chance_levels(std::int64_t pairs) const {
  if (settings_.denominator != "slot") return contrast_chance({"loss_t2i"}, pairs);
  return contrast_chance({"loss_i2t", "loss_t2i"}, pairs);
}

Losses MultiPositiveClip::forward(const Features& features, const StepContext& context) {
  const NoAutocast no_autocast;
  const PairFeatures captions =
      caption_features(features, "multi_positive_clip", settings_.captions, {.image_global = true}, context.group);
  const Contrast contrast = tiled_info_nce({unit_rows(captions.image_global), unit_rows(captions.text_global), captions.relation,
                                            settings_.captions.chunk, context.group},
                                           scale(captions.dtype()), denominator_named(settings_.denominator));
  return {contrast.loss, {{"loss_i2t", contrast.i2t}, {"loss_t2i", contrast.t2i}}, {}};
}

}  // namespace tessera
