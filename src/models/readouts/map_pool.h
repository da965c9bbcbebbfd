#pragma once

#include "src/models/multi_head_attention.h"
#include "src/models/transformer_block.h"
#include <tessera/models/registry.h>

namespace tessera {

struct MapPoolSettings {
  std::int64_t heads = 12;
  std::int64_t mlp_hidden = 0;
  std::string activation = "gelu";
  double norm_eps = 1e-6;
};

template <class Visitor>
void fields(Visitor& v, MapPoolSettings& s) {
  v("heads", s.heads, "attention heads; divides the tokens' width", config::at_least(1));
  v("mlp_hidden", s.mlp_hidden, "hidden width of its MLP; 0: four times the tokens' width", config::at_least(0));
  v("activation", s.activation, "activation of its MLP", config::one_of({"gelu", "gelu_tanh", "quick_gelu", "silu", "relu"}));
  v("norm_eps", s.norm_eps, "epsilon of its LayerNorm", config::above(0));
}

/// `map`: multi-head attention pooling (Zhai et al. 2022, "Scaling vision transformers"; SigLIP, PE-Core). One learned query attends to all
/// tokens, including the class token. The result, which has the tokens' width, is y + MLP(LayerNorm(y)), where y is the attention's output.
/// Parameters are `attn_pool.probe`, `attn_pool.attention.*`, `attn_pool.layernorm.*`, `attn_pool.mlp.*`.
class MapPool : public ReadOut {
 public:
  /// Throws UserError if `heads` does not divide the width.
  MapPool(const MapPoolSettings& settings, const ReadOutContext& context);
  ReadOutOutput forward(const Encoded& encoded, const ViewNeeds& needs) override;
  std::int64_t output_width() const override { return width_; }
  std::string state_dict_key(const std::string& parameter) const override { return "attn_pool." + parameter; }

 private:
  std::int64_t width_;
  at::Tensor probe_;
  std::shared_ptr<MultiHeadAttention> attention_;
  std::shared_ptr<LayerNorm> layernorm_;
  std::shared_ptr<Mlp> mlp_;
};

}  // namespace tessera
