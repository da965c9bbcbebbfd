#include "src/objectives/subcaption_grouping.h"

#include <ATen/ATen.h>

#include "src/objectives/pairs/features.h"
#include "src/objectives/pairs/contrast.h"
#include <tessera/ops/numeric.h>

namespace tessera {

Losses SubcaptionGrouping::forward(const Features& features, const StepContext& context) {
  const NoAutocast no_autocast;
  const PairFeatures captions =
      caption_features(features, "subcaption_grouping", settings_.captions, {.image_tokens = true}, context.group);
  const PairRelation& relation = captions.relation;
  const at::Tensor text = unit_rows(captions.text_global);
  const at::Tensor grouped =
      sparsify_group(text, unit_rows(captions.image_tokens), captions.present, settings_.sparsify);  // [B, K, D]
  const at::Tensor sharpness = scale(captions.dtype());
  at::Tensor loss;
  if (settings_.scope == "image") {
    loss = relation.mean_of(token_contrast(unit_rows(grouped), text, captions.present, sharpness).sum(), context.group);
  } else {
    PairRelation of_captions;  // each caption and its group are a pair
    if (relation.some_absent) of_captions = PairRelation::of_pairs(relation.present.flatten());
    else of_captions.present = relation.present.view({-1, 1});
    ContrastOptions options;
    if (settings_.captions.chunk) options.chunk = *settings_.captions.chunk * relation.texts();
    loss = global_contrast(grouped.flatten(0, 1), text.flatten(0, 1), sharpness, options, context.group, of_captions).loss;
  }
  return {loss, {{"loss_grouping", loss}}, {}};
}

}  // namespace tessera
