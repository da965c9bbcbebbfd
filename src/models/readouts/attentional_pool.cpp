#include <cmath>

#include <ATen/ATen.h>
#include <torch/nn/init.h>

#include <tessera/models/readouts/attentional_pool.h>

namespace tessera {

/// torch.nn.MultiheadAttention with keys and values of another width: three weights then, one fused weight otherwise.
class CrossAttention : public torch::nn::Module {
 public:
  CrossAttention(std::int64_t width, std::int64_t key_width, std::int64_t heads)
      : heads_(heads), out_proj_(width, width) {
    if (key_width == width) {
      weights_ = {make("in_proj_weight", 3 * width, width)};
    } else {
      weights_ = {make("q_proj_weight", width, width), make("k_proj_weight", width, key_width),
                  make("v_proj_weight", width, key_width)};
    }
    bias_ = register_parameter("in_proj_bias", at::zeros({3 * width}));
    register_module("out_proj", out_proj_);
    torch::nn::init::zeros_(out_proj_->bias);
  }

  at::Tensor forward(const at::Tensor& query, const at::Tensor& keys, const AttentionMask& mask) {
    const std::vector<at::Tensor> weights = weights_.size() == 1 ? weights_[0].chunk(3) : weights_;
    const std::vector<at::Tensor> biases = bias_.chunk(3);
    const at::Tensor q = at::linear(query, weights[0], biases[0]).expand({keys.size(0), -1, -1});
    return out_proj_(
        attend(q, at::linear(keys, weights[1], biases[1]), at::linear(keys, weights[2], biases[2]), heads_, mask));
  }

 private:
  at::Tensor make(const char* name, std::int64_t rows, std::int64_t columns) {
    at::Tensor weight = register_parameter(name, at::empty({rows, columns}));
    torch::nn::init::xavier_uniform_(weight);
    return weight;
  }

  std::int64_t heads_;
  std::vector<at::Tensor> weights_;
  at::Tensor bias_;
  torch::nn::Linear out_proj_;
};

std::optional<config::Problem> validate(const AttentionalPoolSettings& s) {
  if (s.output_dim % s.heads != 0)
    return config::Problem{"heads", concat(s.heads, " does not divide output_dim ", s.output_dim)};
  return std::nullopt;
}

AttentionalPool::AttentionalPool(const AttentionalPoolSettings& settings, const ReadOutContext& context)
    : settings_(settings) {
  constexpr double eps = 1e-5;
  const std::int64_t width = settings.output_dim;
  query_ = register_parameter("query", at::randn({settings.queries, width}));
  attn_ = register_module("attn", std::make_shared<CrossAttention>(width, context.width, settings.heads));
  ln_q_ = register_module("ln_q", std::make_shared<LayerNorm>(width, eps));
  ln_k_ = register_module("ln_k", std::make_shared<LayerNorm>(context.width, eps));
  if (settings.project) {
    ln_post_ = register_module("ln_post", std::make_shared<LayerNorm>(width, eps));
    proj_ = register_parameter("proj", at::randn({width, width}) / std::sqrt(static_cast<double>(width)));
  }
}

ReadOutOutput AttentionalPool::forward(const Encoded& encoded, const ViewNeeds& needs) {
  Encoded clean = encoded;
  clean.tokens = zero_padding(encoded.tokens, encoded.mask);
  const at::Tensor tokens = clean.with_class_token();
  const AttentionMask mask = attention_mask(clean.mask_with_class_token(), /*causal=*/false, tokens.size(1));
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
