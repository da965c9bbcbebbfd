#include "src/objectives/dreamlip.h"

#include <ATen/ATen.h>

namespace tessera {

DreamLip::DreamLip(const DreamLipSettings& settings, const ObjectiveContext& context)
    : ContrastiveObjective(context) {
  ObjectiveContext shared = context;
  shared.logit_scale = logit_scale();
  contrast_ = std::make_shared<MultiPositiveClip>(settings.contrast, shared);
  grouping_ = std::make_shared<SubcaptionGrouping>(
      SubcaptionGroupingSettings{settings.contrast.captions, settings.scope, settings.sparsify}, shared);
}

Needs DreamLip::needs() const {
  Needs all = contrast_->needs();
  all.merge(grouping_->needs());
  return all;
}

Losses DreamLip::forward(const Features& features, const StepContext& context) {
  Losses losses = contrast_->forward(features, context);
  const Losses grouping = grouping_->forward(features, context);
  losses.total = losses.total + grouping.total;
  losses.terms.insert(losses.terms.end(), grouping.terms.begin(), grouping.terms.end());
  return losses;
}

}  // namespace tessera
