#include <cmath>

#include <ATen/ATen.h>

#include "src/models/add_module.h"
#include "src/models/multi_head_attention.h"
#include "src/models/transformer_block.h"

namespace tessera {

struct MapPoolSettings {
  std::int64_t heads = 12;
  std::int64_t mlp_hidden = 0;
  std::string activation = "gelu";
  double norm_eps = 1e-6;
  bool attention_only = false;
  bool bias = true;
  std::string qk_norm = "none";
};

template <class Visitor>
void fields(Visitor& v, MapPoolSettings& s) {
  v("heads", s.heads, "attention heads; divides the tokens' width", config::at_least(1));
  v("mlp_hidden", s.mlp_hidden, "hidden width of its MLP; 0: four times the tokens' width", config::at_least(0));
  v("activation", s.activation, "activation of its MLP", config::one_of({"gelu", "gelu_tanh", "quick_gelu", "silu", "relu"}));
  v("norm_eps", s.norm_eps, "epsilon of its norms", config::above(0));
  v("attention_only", s.attention_only,
    "leave out attention's last projection, the LayerNorm and the MLP (OpenCLIP's modern text tower)");
  v("bias", s.bias, "whether queries, keys and values have biases; false needs attention_only: true");
  v("qk_norm", s.qk_norm, "norm over each head's queries and keys: none, or a value of an encoder's setting norm; needs attention_only: true",
    config::one_of({"none", "layer", "layer_no_bias", "rms"}));
}

std::optional<config::Problem> validate(const MapPoolSettings& s) {
  if (!s.attention_only && !s.bias) return config::Problem{"bias", "false needs attention_only: true"};
  if (!s.attention_only && s.qk_norm != "none") return config::Problem{"qk_norm", concat(s.qk_norm, " needs attention_only: true")};
  return std::nullopt;
}

namespace {

/// `map`: multi-head attention pooling (Zhai et al. 2022, "Scaling vision transformers"; SigLIP, PE-Core). One learned query attends to all
/// tokens, including the class token. The result, which has the tokens' width, is y + MLP(LayerNorm(y)), where y is the attention's output;
/// with `attention_only`, it is y before the last projection.
/// Parameters are `attn_pool.probe`, `attn_pool.attention.*`, `attn_pool.layernorm.*`, `attn_pool.mlp.*`.
class MapPool : public ReadOut {
 public:
  /// Throws UserError if `heads` does not divide the width.
  MapPool(const MapPoolSettings& settings, const ReadOutContext& context) : width_(context.width) {
    if (width_ % settings.heads != 0)
      user_error(context.path, ".heads: ", settings.heads, " does not divide the tokens' width ", width_);
    const std::int64_t hidden = settings.mlp_hidden > 0 ? settings.mlp_hidden : 4 * width_;
    probe_ = register_parameter("probe", at::randn({width_}) / std::sqrt(static_cast<double>(width_)));
    attention_ = register_module("attention", std::make_shared<MultiHeadAttention>(
                                                  MultiHeadAttentionSettings{.width = width_,
                                                                             .heads = settings.heads,
                                                                             .input_bias = settings.bias ? "all" : "none",
                                                                             .output = !settings.attention_only,
                                                                             .query_key_norm = settings.qk_norm != "none",
                                                                             .norm_eps = settings.norm_eps,
                                                                             .norm_kind = settings.qk_norm}));
    if (settings.attention_only) return;
    layernorm_ = register_module("layernorm", std::make_shared<LayerNorm>(width_, settings.norm_eps));
    mlp_ = register_module("mlp", std::make_shared<Mlp>(MlpShape{
                                      .width = width_, .hidden = hidden, .activation = settings.activation}));
  }

  ReadOutOutput forward(const Encoded& encoded, const ViewNeeds& /*needs*/) override {
    Encoded clean = encoded;
    clean.tokens = zero_padding(encoded.tokens, encoded.mask);
    const at::Tensor tokens = clean.with_class_token();
    const AttentionMask mask = attention_mask(clean.mask_with_class_token(), tokens.size(1));
    const at::Tensor attended = attention_->forward(probe_.view({1, 1, width_}), tokens, mask);  // [B, 1, w]
    const at::Tensor pooled = mlp_ ? attended + mlp_->forward(layernorm_->forward(attended), {}) : attended;
    const at::Tensor rows = pooled.squeeze(1);
    if (!mask.has_key.defined()) return {rows, {}, {}};
    return {at::where(mask.has_key.flatten(1), rows, at::zeros({}, rows.options())), {}, {}};
  }

  std::int64_t output_width() const override { return width_; }
  std::string state_dict_key(const std::string& parameter) const override { return "attn_pool." + parameter; }

 private:
  std::int64_t width_;
  at::Tensor probe_;
  std::shared_ptr<MultiHeadAttention> attention_;
  std::shared_ptr<LayerNorm> layernorm_;
  std::shared_ptr<Mlp> mlp_;
};

}  // namespace

void add_map(ReadOutRegistry& list) {
  add_readout<MapPool, MapPoolSettings>(list, "map", "SigLIP's attention pooling: one learned query, then an MLP");
}

}  // namespace tessera
