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
    "which captions share a softmax with an image's positive; slot: the captions in the same slot; all: all captions; negatives: "
    "only this positive and the negatives",
    config::one_of({"slot", "all", "negatives"}));
}

/// InfoNCE with K captions per image, all of them positives (DreamLIP, arXiv 2403.17007, eq. 3; COSMOS, 2412.01814). With K = 1 it
/// equals `clip`. With the denominator `slot`, the term `loss_i2t` is a mean over images and caption slots (an image's first, second, ...
/// caption); with the other denominators, it is a mean over images. The term `loss_t2i` is a mean over captions.
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
