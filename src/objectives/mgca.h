#pragma once

#include <torch/nn/modules/linear.h>

#include "src/models/multi_head_attention.h"
#include "src/objectives/pairs/pair_objective.h"

namespace tessera {

struct MgcaSettings {
  ContrastSettings pairs;
  std::optional<std::int64_t> embed_dim;
  std::int64_t num_prototypes = 500;
  std::string cross_attention = "projected";
  std::int64_t attention_dim = 128;
  std::int64_t attention_heads = 1;
  std::optional<double> local_temperature;
  std::optional<double> prototype_temperature = 0.2;
  double sinkhorn_epsilon = 0.05;
  std::int64_t sinkhorn_iterations = 3;
  double global_weight = 1.0;
  double local_weight = 1.0;
  double prototype_weight = 1.0;
};

void fields(auto& v, MgcaSettings& s) {
  fields(v, s.pairs);
  v("embed_dim", s.embed_dim, "width of the embeddings; null: the model's", config::at_least(1));
  v("num_prototypes", s.num_prototypes, "number of prototypes, K", config::at_least(1));
  v("cross_attention", s.cross_attention, "how tokens attend to the other modality; projected: with learned projections; "
                                          "similarity: by cosine only",
    config::one_of({"projected", "similarity"}));
  v("attention_dim", s.attention_dim, "width of the projected attention", config::at_least(1));
  v("attention_heads", s.attention_heads, "number of heads of the projected attention", config::at_least(1));
  v("local_temperature", s.local_temperature, "temperature of the token-level terms; null: the learned temperature", config::above(0.0));
  v("prototype_temperature", s.prototype_temperature, "temperature of the prototype predictions; null: the learned temperature",
    config::above(0.0));
  v("sinkhorn_epsilon", s.sinkhorn_epsilon, "strength of the entropy regularization of the codes", config::above(0.0));
  v("sinkhorn_iterations", s.sinkhorn_iterations, "number of row and column normalizations", config::in_range(0, config::kMostCount));
  v("global_weight", s.global_weight, "weight of the contrastive loss on global embeddings", config::at_least(0.0));
  v("local_weight", s.local_weight, "weight of the token-level loss", config::at_least(0.0));
  v("prototype_weight", s.prototype_weight, "weight of the prototype loss", config::at_least(0.0));
}
std::optional<config::Problem> validate(const MgcaSettings& s);

/// MGCA (Wang et al. 2022) contrasts global embeddings, contrasts each token with what it attends to in the other modality (in both
/// directions), and makes the cluster assignments of image and text agree. Terms `loss_global`, `loss_local`, `loss_local_text`,
/// `loss_local_image`, `loss_prototype`; details `image_codes`, `text_codes` [B, K]. Each forward pass normalizes the prototypes' rows in
/// place.
class Mgca : public PairObjective<MgcaSettings> {
 public:
  Mgca(const MgcaSettings& settings, const ObjectiveContext& context);

 private:
  Losses loss(const PairFeatures& pairs, const Features& features, const StepContext& context) override;
  at::Tensor local_loss(const at::Tensor& queries, const at::Tensor& query_mask, const at::Tensor& context,
                        const at::Tensor& context_mask, const MultiHeadAttention* attention);

  std::int64_t embed_dim_;
  torch::nn::Linear prototypes_{nullptr};
  std::shared_ptr<MultiHeadAttention> text_attention_;
  std::shared_ptr<MultiHeadAttention> image_attention_;
};

/// Returns a balanced assignment of B samples to K prototypes (Sinkhorn-Knopp, as in SwAV). Maps scores [B, K] to codes [B, K],
/// whose rows sum to 1, without gradient. Computes in log space, so that a small epsilon does not overflow. Rows that are not
/// `present` [B] are ignored and their codes are 0; an undefined `present` means that all rows are present.
at::Tensor sinkhorn_codes(const at::Tensor& scores, double epsilon, std::int64_t iterations,
                          const at::Tensor& present = {});

}  // namespace tessera
