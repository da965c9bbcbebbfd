#include <cmath>

#include <ATen/ATen.h>

#include "src/models/readouts/attentional_pool.h"

namespace tessera {

std::optional<config::Problem> validate(const AttentionalPoolSettings& s) {
  if (s.output_dim % s.heads != 0)
    return config::Problem{"heads", concat(s.heads, " does not divide output_dim ", s.output_dim)};
  return std::nullopt;
}

AttentionalPool::AttentionalPool(const AttentionalPoolSettings& settings, const ReadOutContext& context)
    : settings_(settings) {
  constexpr double kEps = 1e-5;
  const std::int64_t width = settings.output_dim;
  query_ = register_parameter("query", at::randn({settings.queries, width}));
  attn_ = register_module("attn", std::make_shared<MultiHeadAttention>(MultiHeadAttentionSettings{
                                      .width = width, .heads = settings.heads, .key_width = context.width}));
  ln_q_ = register_module("ln_q", std::make_shared<LayerNorm>(width, kEps));
  ln_k_ = register_module("ln_k", std::make_shared<LayerNorm>(context.width, kEps));
  if (settings.project) {
    ln_post_ = register_module("ln_post", std::make_shared<LayerNorm>(width, kEps));
    proj_ = register_parameter("proj", at::randn({width, width}) / std::sqrt(static_cast<double>(width)));
  }
}

ReadOutOutput AttentionalPool::forward(const Encoded& encoded, const ViewNeeds& needs) {
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

std::string AttentionalPool::state_dict_key(const std::string& parameter) const {
  return parameter == "proj" || parameter.starts_with("ln_post.") ? parameter : "attn_pool." + parameter;
}

}  // namespace tessera
