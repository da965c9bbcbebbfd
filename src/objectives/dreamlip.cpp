#include "src/objectives/add_objective.h"
#include "src/objectives/pairs/contrast.h"
#include "src/objectives/pairs/features.h"
#include "src/objectives/pairs/matryoshka.h"
#include "src/objectives/pairs/tiled_losses.h"
#include "src/ops/token_contrast.h"
#include <tessera/objectives/caption_settings.h>
#include <tessera/objectives/contrastive_objective.h>
#include <tessera/ops/numeric.h>
#include <tessera/ops/sparsify_group.h>

namespace tessera {
namespace {

struct MultiPositiveClipSettings {
  CaptionSettings captions;
  std::string denominator = "slot";
};

// The settings of the objective itself. DreamLip has those of its contrast, but no nested widths, because it compares tokens, too.
struct NestedMultiPositiveClipSettings : MultiPositiveClipSettings {
  std::optional<MatryoshkaSettings> matryoshka;
};

void fields(auto& v, MultiPositiveClipSettings& s) {
  fields(v, s.captions);
  v("denominator", s.denominator,
    "which captions share a softmax with an image's positive; slot: the captions in the same slot; all: all captions; negatives: "
    "only this positive and the negatives",
    config::one_of({"slot", "all", "negatives"}));
}

void fields(auto& v, NestedMultiPositiveClipSettings& s) {
  fields(v, static_cast<MultiPositiveClipSettings&>(s));
  v("matryoshka", s.matryoshka, kMatryoshkaHelp);
}

/// InfoNCE with K captions per image, all of them positives (DreamLIP, arXiv 2403.17007, eq. 3; COSMOS, 2412.01814). With K = 1 it
/// equals `clip`. With the denominator `slot`, the term `loss_i2t` is a mean over images and caption slots (an image's first, second, ...
/// caption); with the other denominators, it is a mean over images. The term `loss_t2i` is a mean over captions.
class MultiPositiveClip : public ContrastiveObjective {
 public:
  MultiPositiveClip(const NestedMultiPositiveClipSettings& settings, const ObjectiveContext& context)
      : ContrastiveObjective(context), settings_(settings), matryoshka_(settings.matryoshka, "multi_positive_clip", context) {
    contrasts_ = matryoshka_.names({"loss_t2i"});
    if (settings.denominator == "slot") contrasts_ = matryoshka_.names({"loss_i2t", "loss_t2i"});
  }

  Losses forward(const Features& features, const StepContext& context) override {
    const NoAutocast no_autocast;
    const PairFeatures captions =
        caption_features(features, "multi_positive_clip", settings_.captions, {.image_global = true}, context.group);
    const auto loss_of = [&](const at::Tensor& images, const at::Tensor& texts) -> Losses {
      const Contrast contrast = tiled_info_nce({images, texts, captions.relation, settings_.captions.chunk, context.group},
                                               scale(captions.dtype()), denominator_named(settings_.denominator));
      return {contrast.loss, {{"loss_i2t", contrast.i2t}, {"loss_t2i", contrast.t2i}}, {}};
    };
    return matryoshka_.loss(captions.image_global, captions.text_global, context.group, loss_of);
  }

  Needs needs() const override { return settings_.captions.needs(); }
  std::vector<std::int64_t> nested_widths() const override { return matryoshka_.widths(); }

 private:
  MultiPositiveClipSettings settings_;
  Matryoshka matryoshka_;
};

struct GroupingSettings {
  std::string scope = "batch";
  SparsifySettings sparsify;
};

void fields(auto& v, GroupingSettings& s) {
  v("scope", s.scope, "batch: a caption and its grouped patches are contrasted with those of the whole batch; image: only with "
                      "those of the same image",
    config::one_of({"batch", "image"}));
  fields(v, s.sparsify);
}

struct SubcaptionGroupingSettings {
  CaptionSettings captions;
  GroupingSettings grouping;
};

void fields(auto& v, SubcaptionGroupingSettings& s) {
  fields(v, s.captions);
  fields(v, s.grouping);
}

/// Subcaption-specific grouping (DreamLIP, arXiv 2403.17007, section 3.3): each caption groups the patches of its own image, as a
/// token does in SPARC, and is contrasted with its group. Captions and patches have unit length. Term `loss_grouping`.
class SubcaptionGrouping : public ContrastiveObjective {
 public:
  SubcaptionGrouping(const SubcaptionGroupingSettings& settings, const ObjectiveContext& context)
      : ContrastiveObjective(context), settings_(settings) {}

  Losses forward(const Features& features, const StepContext& context) override {
    const NoAutocast no_autocast;
    const PairFeatures captions =
        caption_features(features, "subcaption_grouping", settings_.captions, {.image_tokens = true}, context.group);
    const PairRelation& relation = captions.relation;
    const at::Tensor text = unit_rows(captions.text_global);
    const at::Tensor grouped =
        sparsify_group(text, unit_rows(captions.image_tokens), captions.present, settings_.grouping.sparsify);  // [B, K, D]
    const at::Tensor sharpness = scale(captions.dtype());
    at::Tensor loss;
    if (settings_.grouping.scope == "image") {
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

  Needs needs() const override { return settings_.captions.needs({.tokens = true}); }

 private:
  SubcaptionGroupingSettings settings_;
};

struct DreamLipSettings {
  MultiPositiveClipSettings contrast;
  GroupingSettings grouping;
};

void fields(auto& v, DreamLipSettings& s) {
  fields(v, s.contrast);
  fields(v, s.grouping);
}

/// DreamLIP (arXiv 2403.17007): the contrast of `multi_positive_clip` and the grouping of `subcaption_grouping`, with one shared
/// temperature. Terms `loss_i2t`, `loss_t2i`, `loss_grouping`.
class DreamLip : public ContrastiveObjective {
 public:
  DreamLip(const DreamLipSettings& settings, const ObjectiveContext& context)
      : ContrastiveObjective(context) {
    ObjectiveContext shared = context;
    shared.logit_scale = logit_scale();
    contrast_ = std::make_shared<MultiPositiveClip>(NestedMultiPositiveClipSettings{settings.contrast, {}}, shared);
    grouping_ = std::make_shared<SubcaptionGrouping>(SubcaptionGroupingSettings{settings.contrast.captions, settings.grouping}, shared);
  }

  Losses forward(const Features& features, const StepContext& context) override {
    Losses losses = contrast_->forward(features, context);
    const Losses grouping = grouping_->forward(features, context);
    losses.total = losses.total + grouping.total;
    losses.terms.insert(losses.terms.end(), grouping.terms.begin(), grouping.terms.end());
    return losses;
  }

  Needs needs() const override {
    Needs all = contrast_->needs();
    all.merge(grouping_->needs());
    return all;
  }

  std::map<std::string, double> chance_levels(std::int64_t pairs) const override {
    return contrast_->chance_levels(pairs);
  }

 private:
  // These objectives are not registered as submodules, because their only parameter is the shared temperature.
  std::shared_ptr<MultiPositiveClip> contrast_;
  std::shared_ptr<SubcaptionGrouping> grouping_;
};

}  // namespace

void add_multi_positive_clip(ObjectiveRegistry& list) {
  add_objective<MultiPositiveClip, NestedMultiPositiveClipSettings>(list, "multi_positive_clip", "contrast of an image with several captions");
}

void add_subcaption_grouping(ObjectiveRegistry& list) {
  add_objective<SubcaptionGrouping, SubcaptionGroupingSettings>(
      list, "subcaption_grouping", "contrast of each caption with the patches grouped for it (Zheng et al. 2024)");
}

void add_dreamlip(ObjectiveRegistry& list) {
  add_objective<DreamLip, DreamLipSettings>(list, "dreamlip",
      "contrast with several captions per image, and of each caption with the patches grouped for it (Zheng et al. 2024)");
}

}  // namespace tessera
