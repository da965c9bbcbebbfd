#include "src/objectives/add_objective.h"
#include "src/objectives/pairs/contrast.h"
#include "src/objectives/pairs/matryoshka.h"
#include "src/objectives/pairs/pair_objective.h"
#include <tessera/objectives/negative_texts.h>

namespace tessera {
namespace {

struct ClipSettings {
  ContrastSettings pairs;
  NegativeTextSettings negatives;
  bool local_loss = true;
  std::optional<MatryoshkaSettings> matryoshka;
};

void fields(auto& v, ClipSettings& s) {
  fields(v, s.pairs);
  fields(v, s.negatives);
  v("local_loss", s.local_loss, "with several ranks, each rank computes only its own pairs' part of the loss; false: each computes "
                                "the whole loss");
  v("matryoshka", s.matryoshka, kMatryoshkaHelp);
}

/// The contrastive loss of CLIP (Radford et al. 2021): InfoNCE on the cosines of global embeddings. Terms `loss_i2t`, `loss_t2i`.
/// With hard negatives, images are also compared with the negative texts (NegCLIP, Yuksekgonul et al. 2023), and the statistic
/// `negatives_per_image` is the mean number of present negatives.
class Clip : public PairObjective<ClipSettings> {
 public:
  Clip(const ClipSettings& settings, const ObjectiveContext& context)
      : PairObjective("clip", {.image_global = true, .text_global = true}, settings, context),
        matryoshka_(settings.matryoshka, "clip", context) {
    matryoshka_.refuse("hard_negatives", settings.negatives.any());
    contrasts_ = matryoshka_.names({"loss_t2i"});
    if (!settings.negatives.any()) contrasts_ = matryoshka_.names({"loss_i2t", "loss_t2i"});
  }

  Losses loss(const PairFeatures& pairs, const Features& features, const StepContext& context) override {
    const auto losses_of = [](const Contrast& contrast) -> Losses {
      return {contrast.loss, {{"loss_i2t", contrast.i2t}, {"loss_t2i", contrast.t2i}}, {}};
    };
    if (matryoshka_)
      return matryoshka_.loss(pairs.image_global, pairs.text_global.unsqueeze(1), context.group,
                              [&](const at::Tensor& images, const at::Tensor& texts) {
                                return losses_of(tiled_info_nce({images, texts, pairs.relation, settings_.pairs.chunk, context.group},
                                                                scale(pairs.dtype()), Denominator::slot));
                              });
    const NegativeTexts negatives = negative_texts(features, "clip", settings_.negatives, pairs);
    const Contrast contrast =
        global_contrast(pairs.image_global, pairs.text_global, scale(pairs.dtype()),
                        {settings_.pairs.chunk, settings_.local_loss}, context.group, pairs.relation, negatives);
    Losses losses = losses_of(contrast);
    if (negatives.defined()) losses.statistics = {negatives.count()};
    return losses;
  }

  Needs needs() const override {
    Needs needs = PairObjective::needs();
    settings_.negatives.add_needs(needs);
    return needs;
  }

  std::vector<std::int64_t> nested_widths() const override { return matryoshka_.widths(); }

 private:
  Matryoshka matryoshka_;
};

}  // namespace

void add_clip(ObjectiveRegistry& list) {
  add_objective<Clip, ClipSettings>(list, "clip", "contrast of global embeddings (Radford et al. 2021)");
}

}  // namespace tessera
