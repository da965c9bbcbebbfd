#include "src/models/text_conditioned_pool.h"

#include <cmath>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <tessera/base/error.h>

namespace tessera {
namespace {


}  // namespace

TextConditionedPool::TextConditionedPool(const TextConditionedPoolSettings& settings, std::int64_t embed_dim)
    : settings_(settings), width_(embed_dim) {
  if (embed_dim % settings.heads != 0)
    user_error("objective.heads: ", settings.heads, " do not divide the embedding's width of ", embed_dim,
               ": set a number that does");
  const auto norm = [&](const char* name) {
    return register_module(name, std::make_shared<LayerNorm>(embed_dim, kNormEps));
  };
  query_norm_ = norm("ln_q");
  key_norm_ = norm("ln_k");
  value_norm_ = norm("ln_v");
  attention_ = register_module("attn", std::make_shared<MultiHeadAttention>(MultiHeadAttentionSettings{
                                           .width = embed_dim, .heads = settings.heads}));
}

TextPoolParameters TextConditionedPool::parameters_of_operator() const {
  const auto parameters = attention_->named_parameters();
  return {query_norm_->weight(),          query_norm_->bias(),          key_norm_->weight(),
          key_norm_->bias(),              value_norm_->weight(),        value_norm_->bias(),
          parameters["in_proj_weight"],   parameters["in_proj_bias"],   parameters["out_proj.weight"],
          parameters["out_proj.bias"],    settings_.heads,              settings_.zero_token};
}

at::Tensor TextConditionedPool::project_queries(const at::Tensor& queries) {
  const auto weights = attention_->projections();
  return at::linear(query_norm_->forward(queries), weights[0], weights[1]);
}

at::Tensor TextConditionedPool::project_keys(const at::Tensor& image_tokens) {
  const auto weights = attention_->projections();
  return at::linear(key_norm_->forward(image_tokens), weights[2], weights[3]);
}

at::Tensor TextConditionedPool::project_values(const at::Tensor& image_tokens) {
  const auto weights = attention_->projections();
  return at::linear(value_norm_->forward(image_tokens), weights[4], weights[5]);
}

at::Tensor TextConditionedPool::project_output(const at::Tensor& heads_output) {
  const auto weights = attention_->projections();
  return at::linear(heads_output, weights[6], weights[7]);
}

TextConditionedPool::Pooled TextConditionedPool::forward(const at::Tensor& image_tokens, const at::Tensor& queries) {
  Pooled out{text_conditioned_pool(image_tokens, queries, parameters_of_operator()), {}};
  const c10::NoGradGuard no_grad;
  const auto by_head = [&](const at::Tensor& x) {  // [.., n, D] -> [.., H, n, d]
    return x.unflatten(-1, {settings_.heads, -1}).transpose(-3, -2);
  };
  const at::Tensor keys = by_head(project_keys(image_tokens));
  at::Tensor scores = at::matmul(by_head(project_queries(queries)), keys.mT()) /
                      std::sqrt(static_cast<double>(keys.size(-1)));  // [B, H, Q, P]
  if (settings_.zero_token) scores = at::constant_pad_nd(scores, {0, 1}, 0);
  out.attention = scores.softmax(-1).narrow(-1, 0, keys.size(-2)).mean(1);
  return out;
}

}  // namespace tessera
