#pragma once

#include <memory>

#include "src/objectives/multi_positive_clip.h"
#include "src/objectives/subcaption_grouping.h"

namespace tessera {

struct DreamLipSettings {
  MultiPositiveClipSettings contrast;
  std::string scope = "batch";
  SparsifySettings sparsify;
};

template <class Visitor>
void fields(Visitor& v, DreamLipSettings& s) {
  fields(v, s.contrast);
  v("scope", s.scope, "batch: a caption and its grouped patches are contrasted with those of the whole batch; image: only with "
                      "those of the same image",
    config::one_of({"batch", "image"}));
  fields(v, s.sparsify);
}

/// DreamLIP (arXiv 2403.17007): the contrast of `multi_positive_clip` and the grouping of `subcaption_grouping`, with one shared
/// temperature. Terms `loss_i2t`, `loss_t2i`, `loss_grouping`.
class DreamLip : public ContrastiveObjective {
 public:
  DreamLip(const DreamLipSettings& settings, const ObjectiveContext& context);
  Losses forward(const Features& features, const StepContext& context) override;
  Needs needs() const override;
  std::map<std::string, double> chance_levels(std::int64_t pairs) const override {
    return contrast_->chance_levels(pairs);
  }

 private:
  // These objectives are not registered as submodules, because their only parameter is the shared temperature.
  std::shared_ptr<MultiPositiveClip> contrast_;
  std::shared_ptr<SubcaptionGrouping> grouping_;
};

}  // namespace tessera
