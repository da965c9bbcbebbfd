#include "src/objectives/subcaption_grouping.h"

#include <ATen/ATen.h>

#include "src/objectives/common/caption_features.h"
#include "src/objectives/common/contrast.h"
#include <tessera/ops/numeric.h>

namespace tessera {

Losses SubcaptionGrouping::forward(const Features& features, const StepContext& context) {
  const NoAutocast no_autocast;
  const CaptionFeatures captions =
      caption_features(features, "subcaption_grouping", settings_.captions, {.image_tokens = true}, context.group);
  const CaptionRelation& relation = captions.relation;
  const at::Tensor text = unit_rows(captions.text_global);
  const at::Tensor grouped =
      sparsify_group(text, unit_rows(captions.image_tokens), captions.present, settings_.sparsify);  // [B, K, D]
  const at::Tensor sharpness = scale(captions.dtype());
  at::Tensor loss;
  if (settings_.scope == "image") {
    loss = relation.mean_over_captions(token_contrast(unit_rows(grouped), text, captions.present, sharpness).sum(),
                                       context.group);
  } else {
    ContrastTargets targets;
    if (relation.some_absent) targets.present = relation.present.flatten();
    ContrastOptions options;
    if (settings_.captions.chunk) options.chunk = *settings_.captions.chunk * captions.captions();
    loss = global_contrast(grouped.flatten(0, 1), text.flatten(0, 1), sharpness, options, context.group, targets).loss;
  }
  return {loss, {{"loss_grouping", loss}}, {}};
}

}  // namespace tessera
