#include <tessera/objectives/dreamlip.h>

#include <ATen/ATen.h>

namespace tessera {

DreamLip::DreamLip(const DreamLipSettings& settings, const ObjectiveContext& context)
    : ContrastiveObjective(context), settings_(settings) {
  ObjectiveContext shared = context;
  shared.logit_scale = logit_scale();
  contrast_ = std::make_shared<MultiPositiveClip>(settings.contrast, shared);
  grouping_ = std::make_shared<SubcaptionGrouping>(
      SubcaptionGroupingSettings{settings.contrast.captions, settings.scope, settings.sparsify}, shared);
}

Needs DreamLip::needs() const {
  Needs all = contrast_->needs();
  if (settings_.grouping_weight > 0) all.merge(grouping_->needs());
  return all;
}

Losses DreamLip::forward(const Features& features, const StepContext& context) {
  Losses losses = contrast_->forward(features, context);
  losses.total = settings_.contrast_weight * losses.total;
  if (settings_.grouping_weight == 0) return losses;
  const Losses grouping = grouping_->forward(features, context);
  losses.total = losses.total + settings_.grouping_weight * grouping.total;
  losses.terms.insert(losses.terms.end(), grouping.terms.begin(), grouping.terms.end());
  return losses;
}

}  // namespace tessera
