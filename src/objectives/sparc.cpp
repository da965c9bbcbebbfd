#include <ATen/ATen.h>

#include "src/objectives/add_objective.h"
#include "src/objectives/common/reduction.h"
#include "src/objectives/pairs/contrast.h"
#include "src/objectives/pairs/pair_objective.h"
#include "src/ops/token_contrast.h"
#include <tessera/objectives/patch_weights.h>
#include <tessera/ops/activation_checkpoint.h>
#include <tessera/ops/sparsify_group.h>

namespace tessera {
namespace {

struct SparcSettings {
  ContrastSettings pairs;
  SparsifySettings sparsify;  // its keys are part of the objective's own settings
  double global_weight = 0.5;
  double local_weight = 1.0;
  std::string token_reduction = "sequence";
};

void fields(auto& v, SparcSettings& s) {
  fields(v, s.pairs);
  fields(v, s.sparsify);
  v("global_weight", s.global_weight, "weight of the contrastive loss on global embeddings (lambda_g, eq. 7)",
    config::at_least(0.0));
  v("local_weight", s.local_weight, "weight of the token-level loss (lambda_f, eq. 7)", config::at_least(0.0));
  v("token_reduction", s.token_reduction,
    "sequence: mean over each caption's tokens, then over captions (eq. 6); batch: mean over all tokens of the batch (Listing 1)",
    config::one_of({"sequence", "batch"}));
}

/// SPARC (Bica et al. 2024): the contrastive loss on global embeddings, and a contrast between each caption's tokens and the patch
/// embeddings that sparsify_group gathers for them. If both inputs are bfloat16, the grouping runs in bfloat16, and so do the products of
/// the contrast on a GPU; everything else is float32. Terms `loss_global`, `loss_local`.
class Sparc : public PairObjective<SparcSettings>, public PatchWeights {
 public:
  Sparc(const SparcSettings& settings, const ObjectiveContext& context)
      : PairObjective("sparc",
                      {.image_global = true, .text_global = true, .image_tokens = true, .text_tokens = true, .bfloat16_tokens = true},
                      settings, context) {
    if (settings.global_weight != 0) contrasts_ = {"loss_global"};
  }

  Losses loss(const PairFeatures& pairs, const Features& /*features*/, const StepContext& context) override {
    const at::Tensor inverse_temperature = scale(pairs.dtype());
    const Contrast global = global_contrast(pairs.image_global, pairs.text_global, inverse_temperature,
                                            {settings_.pairs.chunk}, context.group, pairs.relation);

    const auto body = [sparsify = settings_.sparsify](const std::vector<at::Tensor>& tile) {
      const at::Tensor &text = tile[0], &image = tile[1], &mask = tile[2];
      const at::Tensor grouped = sparsify_group(text, image, mask, sparsify);  // [b, L, D]
      return normalized_token_contrast(grouped, text, mask, tile[3]);
    };
    const at::Tensor tokens = map_tiles(body, {pairs.text_tokens, pairs.image_tokens, pairs.text_mask},
                                        {inverse_temperature}, settings_.pairs.chunk);  // [B, L]
    const at::Tensor local = settings_.token_reduction == "batch"
                                 ? mean_over_tokens(tokens, pairs.text_mask, context.group)
                                 : mean_over_sequences(tokens, pairs.text_mask, pairs.relation, context.group);

    const at::Tensor total = settings_.global_weight * global.loss + settings_.local_weight * local;
    return {total, {{"loss_global", global.loss}, {"loss_local", local}}, {}};
  }

  at::Tensor patch_weights(const TowerFeatures& images, const TowerFeatures& texts) const override {
    const auto all = [&] { return at::ones(texts.tokens.sizes().slice(0, 2), texts.tokens.options().dtype(at::kBool)); };
    const at::Tensor mask = texts.mask.defined() ? texts.mask : all();
    return sparsify_weights(texts.tokens, images.tokens, mask, settings_.sparsify);
  }

  const char* describe_weights() const override {
    return "The weights with which sparc gathers patches for a word: similarities, scaled to 0 to 1, small ones set to "
           "0, with the sum 1 "
           "(eq. 2-4).";
  }
};

}  // namespace

void add_sparc(ObjectiveRegistry& list) {
  add_objective<Sparc, SparcSettings>(list, "sparc",
      "contrast of each token with the patches grouped for it, within each pair (Bica et al. 2024)");
}

}  // namespace tessera
