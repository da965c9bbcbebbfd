#include <cmath>

#include <ATen/ATen.h>

#include "src/objectives/add_objective.h"
#include "src/objectives/pairs/contrast.h"
#include "src/objectives/pairs/pair_objective.h"
#include "src/objectives/pairs/ring_columns.h"
#include <tessera/objectives/patch_weights.h>
#include <tessera/ops/activation_checkpoint.h>

namespace tessera {
namespace {

struct GloriaSettings {
  ContrastSettings pairs;
  double attention_temperature = 0.25;
  std::optional<double> score_temperature = 0.2;
  std::string similarity_scale = "sqrt_dim";
  bool word_softmax = false;
  std::string word_reduction = "sum";
  bool scale_score = false;
  double global_weight = 1.0;
  double local_weight = 1.0;
};

void fields(auto& v, GloriaSettings& s) {
  fields(v, s.pairs);
  v("attention_temperature", s.attention_temperature, "temperature of the softmax over patches", config::above(0.0));
  v("score_temperature", s.score_temperature, "temperature of the log-sum-exp over words; null: the learned temperature",
    config::above(0.0));
  v("similarity_scale", s.similarity_scale, "sqrt_dim: divide word-patch products by the square root of the width; none: do not divide",
    config::one_of({"sqrt_dim", "none"}));
  v("word_softmax", s.word_softmax, "apply a softmax over words before the softmax over patches (as in the official code)");
  v("word_reduction", s.word_reduction, "sum: log-sum-exp over words; mean: log-mean-exp", config::one_of({"sum", "mean"}));
  v("scale_score", s.scale_score, "multiply the score by its temperature (the paper's exponent)");
  v("global_weight", s.global_weight, "weight of the contrastive loss on global embeddings", config::at_least(0.0));
  v("local_weight", s.local_weight, "weight of the word-level loss", config::at_least(0.0));
}

// Returns the scores [B, t] of this rank's images for a tile of t texts. patches: [B, P, D]. text: the tokens [t, L, D]. mask: [t, L].
at::Tensor scores(const GloriaSettings& settings, const at::Tensor& text, const at::Tensor& mask,
                  const at::Tensor& patches, const at::Tensor& sharpness) {
  const std::int64_t images = patches.size(0), texts = text.size(0), words = text.size(1), width = text.size(2);
  const double nothing = lowest(text.scalar_type());
  at::Tensor products = at::matmul(text.reshape({texts * words, width}), patches.mT());  // [B, t*L, P]
  if (settings.similarity_scale == "sqrt_dim") products = products / std::sqrt(static_cast<double>(width));
  if (settings.word_softmax) {
    const at::Tensor grid = products.view({images, texts, words, patches.size(1)});
    products = grid.masked_fill(~mask.unsqueeze(-1), nothing).softmax(2).view_as(products);
  }
  const at::Tensor context =
      at::matmul((products / settings.attention_temperature).softmax(-1), patches);  // [B, t*L, D]
  const at::Tensor likeness =
      (unit_rows(context).view({images, texts, words, width}) * unit_rows(text)).sum(-1);  // [B, t, L]
  at::Tensor score = (likeness * sharpness).masked_fill(~mask, nothing).logsumexp(-1);
  const at::Tensor lengths = mask.sum(1);
  if (settings.word_reduction == "mean") score = score - lengths.clamp_min(1).to(score.scalar_type()).log();
  if (settings.scale_score) score = score / sharpness;
  return score.masked_fill(lengths == 0, 0.0);
}

/// GLoRIA (Huang et al. 2021): each word attends to the patches of every image. An image's score for a text is the log-sum-exp,
/// over the text's words, of the similarity between a word and the patches that it attends to. Terms `loss_global`, `loss_local`;
/// details `similarity` [B, B].
class Gloria : public PairObjective<GloriaSettings>, public PatchWeights {
 public:
  Gloria(const GloriaSettings& settings, const ObjectiveContext& context)
      : PairObjective("gloria", {.image_global = true, .text_global = true, .image_tokens = true, .text_tokens = true}, settings, context) {
    if (settings.global_weight != 0) contrasts_.emplace_back("loss_global");
    if (settings.local_weight != 0) contrasts_.emplace_back("loss_local");
  }

  Losses loss(const PairFeatures& pairs, const Features& /*features*/, const StepContext& context) override {
    const at::Tensor learned = scale(pairs.dtype());
    const Contrast global = global_contrast(pairs.image_global, pairs.text_global, learned, {settings_.pairs.chunk},
                                            context.group, pairs.relation);

    const auto body = [settings = settings_](const std::vector<at::Tensor>& tile) {
      return scores(settings, tile[0], tile[1], tile[2], tile[3]);
    };
    const at::Tensor sharpness = inverse_temperature(settings_.score_temperature, pairs.dtype());
    const at::Tensor similarity =
        map_texts(body, {pairs.image_tokens, sharpness}, {pairs.text_tokens, pairs.text_mask}, settings_.pairs.chunk,
                  context.group);  // [B, C], similarities of this rank's images with the texts of all ranks
    const Contrast local = info_nce(similarity, similarity, learned, context.group, pairs.relation);

    Losses losses{settings_.global_weight * global.loss + settings_.local_weight * local.loss,
                  {{"loss_global", global.loss}, {"loss_local", local.loss}},
                  {}};
    if (context.inspect) losses.details = {{"similarity", similarity.detach()}};
    return losses;
  }

  at::Tensor patch_weights(const TowerFeatures& images, const TowerFeatures& texts) const override {
    const at::NoGradGuard no_grad;
    const at::Tensor words = to_compute(texts.tokens);
    at::Tensor products = at::matmul(words, to_compute(images.tokens).mT());  // [B, L, P]
    if (settings_.similarity_scale == "sqrt_dim") products = products / std::sqrt(static_cast<double>(words.size(2)));
    if (settings_.word_softmax) {
      if (texts.mask.defined()) products = products.masked_fill(~texts.mask.unsqueeze(2), lowest(products.scalar_type()));
      products = products.softmax(1);
    }
    return (products / settings_.attention_temperature).softmax(2);
  }

  const char* describe_weights() const override {
    return "The weights with which a word attends to patches in gloria, with the sum 1.";
  }
};

}  // namespace

void add_gloria(ObjectiveRegistry& list) {
  add_objective<Gloria, GloriaSettings>(list, "gloria", "contrast of words with the patches that they attend to (Huang et al. 2021)");
}

}  // namespace tessera
