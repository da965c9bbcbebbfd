#include <cmath>
#include <memory>
#include <string>

#include <ATen/ATen.h>

#include "src/models/add_module.h"
#include "src/models/layers.h"
#include "src/models/multi_head_attention.h"

namespace tessera {

struct AttentionalPoolSettings {
  std::int64_t output_dim = 512;
  std::int64_t heads = 8;
  std::int64_t queries = 256;
  std::string pool = "first";
  bool project = true;
};

template <class Visitor>
void fields(Visitor& v, AttentionalPoolSettings& s) {
  v("output_dim", s.output_dim, "width of the queries and of the result", config::at_least(1));
  v("heads", s.heads, "attention heads; divides output_dim", config::at_least(1));
  v("queries", s.queries, "number of learned queries", config::at_least(1));
  v("pool", s.pool, "first: the first query's output; mean: the mean of all queries' outputs", config::one_of({"first", "mean"}));
  v("project", s.project, "whether the queries' outputs get a LayerNorm, and the pooled vector a square projection");
}

std::optional<config::Problem> validate(const AttentionalPoolSettings& s) {
  if (s.output_dim % s.heads != 0)
    return config::Problem{"heads", concat(s.heads, " does not divide output_dim ", s.output_dim)};
  return std::nullopt;
}

namespace {

/// CoCa's attentional pooler (Yu et al. 2022) as in OpenCLIP: learned queries attend to all tokens, including the class token. The pooler
/// has its own final norm (`ln_post`), so the settings are usually `final_norm: none` for the encoder and `projection: none` for the tower.
class AttentionalPool : public ReadOut {
 public:
  AttentionalPool(const AttentionalPoolSettings& settings, const ReadOutContext& context) : settings_(settings) {
    const std::int64_t width = settings.output_dim;
    query_ = register_parameter("query", at::randn({settings.queries, width}));
    attn_ = register_module("attn", std::make_shared<MultiHeadAttention>(MultiHeadAttentionSettings{
                                        .width = width, .heads = settings.heads, .key_width = context.width}));
    ln_q_ = register_module("ln_q", std::make_shared<LayerNorm>(width, kNormEps));
    ln_k_ = register_module("ln_k", std::make_shared<LayerNorm>(context.width, kNormEps));
    if (settings.project) {
      ln_post_ = register_module("ln_post", std::make_shared<LayerNorm>(width, kNormEps));
      proj_ = register_parameter("proj", at::randn({width, width}) / std::sqrt(static_cast<double>(width)));
    }
  }

  /// `slots` are the queries' outputs [B, queries, output_dim].
  ReadOutOutput forward(const Encoded& encoded, const ViewNeeds& needs) override {
    Encoded clean = encoded;
    clean.tokens = zero_padding(encoded.tokens, encoded.mask);
    const at::Tensor tokens = clean.with_class_token();
    const AttentionMask mask = attention_mask(clean.mask_with_class_token(), tokens.size(1));
    at::Tensor queries = attn_->forward(ln_q_->forward(query_).unsqueeze(0), ln_k_->forward(tokens), mask);  // [B, Q, M]
    if (settings_.project) queries = ln_post_->forward(queries);
    at::Tensor pooled = settings_.pool == "first" ? queries.select(1, 0) : at_least_float(queries).mean(1);
    if (settings_.project) pooled = at::matmul(pooled, proj_);
    return {pooled, needs.slots ? queries : at::Tensor(), {}};
  }

  std::int64_t output_width() const override { return settings_.output_dim; }
  /// Returns a parameter's name in OpenCLIP: `attn_pool.*`, except for `ln_post.*` and `proj`, which belong to the tower itself.
  std::string state_dict_key(const std::string& parameter) const override {
    return parameter == "proj" || parameter.starts_with("ln_post.") ? parameter : "attn_pool." + parameter;
  }

 private:
  AttentionalPoolSettings settings_;
  at::Tensor query_;
  std::shared_ptr<LayerNorm> ln_q_, ln_k_, ln_post_;
  std::shared_ptr<MultiHeadAttention> attn_;
  at::Tensor proj_;
};

}  // namespace

void add_attentional_pool(ReadOutRegistry& list) {
  add_readout<AttentionalPool, AttentionalPoolSettings>(list, "attentional_pool", "CoCa's attentional pooler");
}

}  // namespace tessera
