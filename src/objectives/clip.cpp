#include "src/objectives/add_objective.h"
#include "src/objectives/pairs/contrast.h"
#include "src/objectives/pairs/features.h"
#include <tessera/objectives/contrastive_objective.h>
#include <tessera/objectives/negative_texts.h>
#include <tessera/ops/numeric.h>

namespace tessera {
namespace {

struct ClipSettings {
  ContrastSettings pairs;
  NegativeTextSettings negatives;
  bool local_loss = true;
};

template <class Visitor>
void fields(Visitor& v, ClipSettings& s) {
  fields(v, s.pairs);
  fields(v, s.negatives);
  v("local_loss", s.local_loss, "with several ranks, each rank computes only its own pairs' part of the loss; false: each computes "
                                "the whole loss");
}

/// The contrastive loss of CLIP (Radford et al. 2021): InfoNCE on the cosines of global embeddings. Terms `loss_i2t`, `loss_t2i`.
/// With hard negatives, images are also compared with the negative texts (NegCLIP, Yuksekgonul et al. 2023), and the statistic
/// `negatives_per_image` is the mean number of present negatives.
class Clip : public ContrastiveObjective {
 public:
  Clip(const ClipSettings& settings, const ObjectiveContext& context)
      : ContrastiveObjective(context), settings_(settings) {}

  Losses forward(const Features& features, const StepContext& context) override {
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

  Needs needs() const override {
    Needs needs = settings_.pairs.needs();
    settings_.negatives.add_needs(needs);
    return needs;
  }

  std::map<std::string, double> chance_levels(std::int64_t pairs) const override {
    if (settings_.negatives.any()) return contrast_chance({"loss_t2i"}, pairs);
    return contrast_chance({"loss_i2t", "loss_t2i"}, pairs);
  }

 private:
  ClipSettings settings_;
};

}  // namespace

void add_clip(ObjectiveRegistry& list) {
  add_objective<Clip, ClipSettings>(list, "clip", "contrast of global embeddings (Radford et al. 2021)");
}

}  // namespace tessera
