#pragma once

#include <tessera/objectives/contrastive_objective.h>
#include <tessera/objectives/patch_weights.h>

namespace tessera {

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

template <class Visitor>
void fields(Visitor& v, GloriaSettings& s) {
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

/// GLoRIA (Huang et al. 2021): each word attends to the patches of every image. An image's score for a text is the log-sum-exp,
/// over the text's words, of the similarity between a word and the patches that it attends to. Terms `loss_global`, `loss_local`;
/// details `similarity` [B, B].
class Gloria : public ContrastiveObjective, public PatchWeights {
 public:
  Gloria(const GloriaSettings& settings, const ObjectiveContext& context)
      : ContrastiveObjective(context), settings_(settings) {}
  Losses forward(const Features& features, const StepContext& context) override;
  Needs needs() const override;
  std::map<std::string, double> chance_levels(std::int64_t pairs) const override;
  at::Tensor patch_weights(const TowerFeatures& images, const TowerFeatures& texts) const override;
  const char* describe_weights() const override;

 private:
  GloriaSettings settings_;
};

}  // namespace tessera
