#include <ATen/ATen.h>
#include <torch/nn/init.h>

#include <tessera/models/multi_head_attention.h>

namespace tessera {
namespace {

std::int64_t or_else(std::int64_t given, std::int64_t width) {
  return given > 0 ? given : width;
}

}  // namespace

MultiHeadAttention::MultiHeadAttention(const MultiHeadAttentionSettings& s)
    : heads_(s.heads), out_proj_(or_else(s.inner_width, s.width), or_else(s.output_width, s.width)) {
  const std::int64_t inner = or_else(s.inner_width, s.width), key_width = or_else(s.key_width, s.width);
  TORCH_CHECK(inner % heads_ == 0, "MultiHeadAttention: ", heads_, " heads do not divide width ", inner);
  const auto weight = [this](const char* name, std::int64_t rows, std::int64_t columns) {
    weights_.push_back(register_parameter(name, at::empty({rows, columns})));
    torch::nn::init::xavier_uniform_(weights_.back());
  };
  const auto linear = [this, inner](const char* name, std::int64_t width) {
    const auto layer = register_module(name, torch::nn::Linear(width, inner));
    weights_.push_back(layer->weight);
    biases_.push_back(layer->bias);
  };
  if (s.linears) {
    linear("q_proj", s.width);
    linear("k_proj", key_width);
    linear("v_proj", key_width);
  } else {
    if (key_width == s.width) {
      weight("in_proj_weight", 3 * inner, s.width);
    } else {
      weight("q_proj_weight", inner, s.width);
      weight("k_proj_weight", inner, key_width);
      weight("v_proj_weight", inner, key_width);
    }
    biases_ = {register_parameter("in_proj_bias", at::zeros({3 * inner}))};
    torch::nn::init::zeros_(out_proj_->bias);
  }
  register_module("out_proj", out_proj_);
}

at::Tensor MultiHeadAttention::forward(const at::Tensor& x, const AttentionMask& mask) {
  if (weights_.size() > 1) return forward(x, x, mask);
  const std::vector<at::Tensor> qkv = queries_keys_values(x);
  return project(attend(qkv[0], qkv[1], qkv[2], heads_, mask));
}

std::vector<at::Tensor> MultiHeadAttention::queries_keys_values(const at::Tensor& x) const {
  TORCH_CHECK(weights_.size() == 1, "MultiHeadAttention: queries, keys and values have weights of their own");
  return at::linear(x, weights_[0], biases_[0]).chunk(3, -1);
}

at::Tensor MultiHeadAttention::forward(const at::Tensor& query, const at::Tensor& keys, const AttentionMask& mask) {
  return multi_head_attention(query, keys, projections(), heads_, mask);
}

void MultiHeadAttention::initialize(double input_deviation, double output_deviation) {
  for (const at::Tensor& weight : weights_) torch::nn::init::normal_(weight, 0.0, input_deviation);
  torch::nn::init::normal_(out_proj_->weight, 0.0, output_deviation);
}

std::vector<at::Tensor> MultiHeadAttention::projections() const {
  const auto three = [](const std::vector<at::Tensor>& parts) { return parts.size() == 1 ? parts[0].chunk(3) : parts; };
  const std::vector<at::Tensor> weights = three(weights_), biases = three(biases_);
  std::vector<at::Tensor> out;
  for (std::size_t i = 0; i < 3; ++i) out.insert(out.end(), {weights[i], biases[i]});
  out.insert(out.end(), {out_proj_->weight, out_proj_->bias});
  return out;
}

at::Tensor multi_head_attention(const at::Tensor& query, const at::Tensor& keys, at::TensorList projections,
                                std::int64_t heads, const AttentionMask& mask) {
  TORCH_CHECK(projections.size() == 8, "multi_head_attention: expected 8 projections, got ", projections.size());
  const auto project = [&](const at::Tensor& x, std::size_t place) {
    return at::linear(x, projections[place], projections[place + 1]);
  };
  const at::Tensor q = project(query, 0).expand({keys.size(0), -1, -1});
  return project(attend(q, project(keys, 2), project(keys, 4), heads, mask), 6);
}

}  // namespace tessera
