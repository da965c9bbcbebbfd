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
  v("scope", s.scope, "batch: a caption and its grouped patches are contrasted with those of the whole batch; image: only with "
                      "those of the same image",
    config::one_of({"batch", "image"}));
  fields(v, s.sparsify);
}

/// Subcaption-specific grouping (DreamLIP, arXiv 2403.17007, section 3.3): each caption groups the patches of its own image, as a
/// token does in SPARC, and is contrasted with its group. Captions and patches have unit length. Term `loss_grouping`.
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
