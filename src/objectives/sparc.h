#pragma once

#include <tessera/objectives/contrastive_objective.h>
#include <tessera/objectives/patch_weights.h>
#include <tessera/ops/sparsify_group.h>

namespace tessera {

struct SparcSettings {
  ContrastSettings pairs;
  SparsifySettings sparsify;  // its keys are part of the objective's own settings
  double global_weight = 0.5;
  double local_weight = 1.0;
  std::string token_reduction = "sequence";
};

template <class Visitor>
void fields(Visitor& v, SparcSettings& s) {
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
/// embeddings that sparsify_group gathers for them. The grouping runs in bfloat16 if both inputs are bfloat16; everything else is
/// float32. Terms `loss_global`, `loss_local`.
class Sparc : public ContrastiveObjective, public PatchWeights {
 public:
  Sparc(const SparcSettings& settings, const ObjectiveContext& context)
      : ContrastiveObjective(context), settings_(settings) {}
  Losses forward(const Features& features, const StepContext& context) override;
  Needs needs() const override;
  std::map<std::string, double> chance_levels(std::int64_t pairs) const override;
  at::Tensor patch_weights(const TowerFeatures& images, const TowerFeatures& texts) const override;
  const char* describe_weights() const override;

 private:
  SparcSettings settings_;
};

}  // namespace tessera
