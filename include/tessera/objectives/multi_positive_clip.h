#pragma once

#include <tessera/objectives/caption_settings.h>
#include <tessera/objectives/contrastive_objective.h>

namespace tessera {

struct MultiPositiveClipSettings {
  CaptionSettings captions;
  std::string denominator = "slot";
};

template <class Visitor>
void fields(Visitor& v, MultiPositiveClipSettings& s) {
  fields(v, s.captions);
  v("denominator", s.denominator,
    "captions in the softmax of an image's positive: slot: those in the same slot; all: all captions; negatives: only the positive "
    "and the negatives",
    config::one_of({"slot", "all", "negatives"}));
}

/// InfoNCE with K captions per image, all of them positives (DreamLIP, arXiv 2403.17007, eq. 3; COSMOS, 2412.01814). K = 1 is
/// `clip`. Terms `loss_i2t`, a mean over images and slots or over images, and `loss_t2i`, a mean over captions.
class MultiPositiveClip : public ContrastiveObjective {
 public:
  MultiPositiveClip(const MultiPositiveClipSettings& settings, const ObjectiveContext& context)
      : ContrastiveObjective(context), settings_(settings) {}
  Losses forward(const Features& features, const StepContext& context) override;
  Needs needs() const override { return settings_.captions.needs(); }
  std::map<std::string, double> chance_levels(std::int64_t pairs) const override;

 private:
  MultiPositiveClipSettings settings_;
};

}  // namespace tessera
