#include "src/objectives/clip.h"
#include "src/objectives/pairs/contrast.h"
#include "src/objectives/pairs/features.h"
#include <tessera/ops/numeric.h>

namespace tessera {

Needs Clip::needs() const {
  Needs needs = settings_.pairs.needs();
  settings_.negatives.add_needs(needs);
  return needs;
}

std::map<std::string, double> Clip::chance_levels(std::int64_t pairs) const {
  if (settings_.negatives.any()) return contrast_chance({"loss_t2i"}, pairs);
  return contrast_chance({"loss_i2t", "loss_t2i"}, pairs);
}

Losses Clip::forward(const Features& features, const StepContext& context) {
  const NoAutocast no_autocast;
  const PairFeatures pairs =
      pair_features(features, "clip", settings_.pairs, {.image_global = true, .text_global = true}, context.group);
  const NegativeTexts negatives = negative_texts(features, "clip", settings_.negatives, pairs);
  const Contrast contrast =
      global_contrast(pairs.image_global, pairs.text_global, scale(pairs.dtype()),
                      {settings_.pairs.chunk, settings_.local_loss}, context.group, pairs.relation, negatives);
  Losses losses{contrast.loss, {{"loss_i2t", contrast.i2t}, {"loss_t2i", contrast.t2i}}, {}};
  if (negatives.defined()) losses.statistics = {negatives.count()};
  return losses;
}

}  // namespace tessera
