#pragma once

#include <memory>

#include "src/models/text_conditioned_pool.h"
#include <tessera/objectives/caption_settings.h>
#include <tessera/objectives/contrastive_objective.h>

namespace tessera {

struct FlairSettings {
  CaptionSettings captions;
  TextConditionedPoolSettings pool;
  std::optional<std::int64_t> embed_dim;
  std::string negatives = "sampled";
  double conditioned_weight = 0.5;
  double global_weight = 0.5;
  double init_logit_bias = -10;
};

void fields(auto& v, FlairSettings& s) {
  fields(v, s.captions);
  fields(v, s.pool);
  v("embed_dim", s.embed_dim, "width of the embeddings; null: the model's", config::at_least(1));
  v("negatives", s.negatives,
    "which captions of every other image an image is compared with: sampled: one caption, drawn in each step; all: every caption, "
    "at K times the cost",
    config::one_of({"sampled", "all"}));
  v("conditioned_weight", s.conditioned_weight, "weight of the text-conditioned term", config::at_least(0.0));
  v("global_weight", s.global_weight, "weight of the term on global embeddings", config::at_least(0.0));
  v("init_logit_bias", s.init_logit_bias, "initial value of the learned bias");
}

/// FLAIR (arXiv 2412.03561). The first term (eq. 4) pools an image separately for each text that the image is compared with
/// (TextConditionedPool, `pool.*`); a sigmoid loss classifies whether the text is one of the image's captions. The second term is the
/// multi-positive sigmoid loss on global embeddings (eq. 5). Each term is the mean over the pairs of the global batch of all ranks,
/// multiplied by the number of images in the global batch. The terms are reported unweighted, as `loss_conditioned` and `loss_global`. They
/// share the parameters `logit_scale` and `logit_bias`.
class Flair : public ContrastiveObjective {
 public:
  /// Throws UserError if the number of heads does not divide the width.
  Flair(const FlairSettings& settings, const ObjectiveContext& context);
  Losses forward(const Features& features, const StepContext& context) override { return forward(features, context, {}); }
  /// Does the same, but takes the negatives from `negative_slots` instead of sampling them. `negative_slots` is int64 [C, C] for the C
  /// images of the global batch. Entry (i, j) says which caption of image j, counted from 0, is compared with image i.
  Losses forward(const Features& features, const StepContext& context, const at::Tensor& negative_slots);
  Needs needs() const override { return settings_.captions.needs({.tokens = true}); }
  bool follows_step() const override { return settings_.negatives == "sampled"; }

 private:
  FlairSettings settings_;
  std::shared_ptr<TextConditionedPool> pool_;
  at::Tensor logit_bias_;
};

}  // namespace tessera
