#pragma once

#include <tessera/objectives/caption_settings.h>
#include <tessera/objectives/contrastive_objective.h>
#include <tessera/ops/sparsify_group.h>

namespace tessera {

struct SubcaptionGroupingSettings {
  CaptionSettings captions;
  std::string scope = "batch";
  SparsifySettings sparsify;
};

template <class Visitor>
void fields(Visitor& v, SubcaptionGroupingSettings& s) {
  fields(v, s.captions);
  v("scope", s.scope, "whether a caption and its grouped patches are contrasted within the batch or within their image",
    config::one_of({"batch", "image"}));
  fields(v, s.sparsify);
}

/// Subcaption-specific grouping (DreamLIP, arXiv 2403.17007, section 3.3): each caption groups the patches of its own image, as
/// tokens do in SPARC, with captions and patches of unit length, and is contrasted with the group. Term `loss_grouping`.
class SubcaptionGrouping : public ContrastiveObjective {
 public:
  SubcaptionGrouping(const SubcaptionGroupingSettings& settings, const ObjectiveContext& context)
      : ContrastiveObjective(context), settings_(settings) {}
  Losses forward(const Features& features, const StepContext& context) override;
  Needs needs() const override { return settings_.captions.needs({.tokens = true}); }

 private:
  SubcaptionGroupingSettings settings_;
};

}  // namespace tessera
