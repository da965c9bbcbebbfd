#include <cmath>

#include <ATen/ATen.h>
#include <torch/nn/init.h>

#include "src/models/autocast.h"
#include "src/models/multi_head_attention.h"
#include "src/models/self_attention.h"
#include "src/ops/packed_weights.h"

namespace tessera {
namespace {

std::int64_t or_else(std::int64_t given, std::int64_t width) {
  return given > 0 ? given : width;
}

// Returns true if a part of the input projection (query, key or value) has a bias.
bool has_bias(const std::string& input_bias, const std::string& part) {
  if (input_bias.starts_with("no_")) return input_bias != "no_" + part;
  return input_bias == part;
}

}  // namespace

MultiHeadAttention::MultiHeadAttention(const MultiHeadAttentionSettings& s)
    : heads_(s.heads),
      key_heads_(or_else(s.key_heads, s.heads)),
      inner_(or_else(s.inner_width, s.width)),
      key_inner_(inner_ / s.heads * key_heads_),
      query_factor_(s.score_scale ? *s.score_scale * std::sqrt(static_cast<double>(inner_ / s.heads)) : 1.0) {
  if (s.output) out_proj_ = torch::nn::Linear(torch::nn::LinearOptions(inner_, or_else(s.output_width, s.width)).bias(s.output_bias));
  const std::int64_t inner = inner_, key_width = or_else(s.key_width, s.width);
  TORCH_CHECK(inner % heads_ == 0, "MultiHeadAttention: ", heads_, " heads do not divide width ", inner);
  TORCH_CHECK(key_inner_ == inner || (!s.linears && key_width == s.width), "MultiHeadAttention: key_heads need a fused projection");
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
      weight("in_proj_weight", inner + 2 * key_inner_, s.width);
    } else {
      weight("q_proj_weight", inner, s.width);
      weight("k_proj_weight", inner, key_width);
      weight("v_proj_weight", inner, key_width);
    }
    if (s.input_bias == "all") {
      biases_ = {register_parameter("in_proj_bias", at::zeros({inner + 2 * key_inner_}))};
    } else if (s.input_bias != "none") {
      TORCH_CHECK(weights_.size() == 1, "MultiHeadAttention: input_bias ", s.input_bias, " needs a fused projection");
      for (const char* part : {"query", "key", "value"})
        biases_.push_back(has_bias(s.input_bias, part) ? register_parameter(std::string(1, part[0]) + "_bias",
                                                                            at::zeros({biases_.empty() ? inner : key_inner_}))
                                                       : at::Tensor());
    }
    if (out_proj_ && s.output_bias) torch::nn::init::zeros_(out_proj_->bias);
  }
  if (s.query_key_norm) {
    query_norm_ = register_module("q_norm", std::make_shared<LayerNorm>(inner / heads_, s.norm_eps, s.norm_kind));
    key_norm_ = register_module("k_norm", std::make_shared<LayerNorm>(inner / heads_, s.norm_eps, s.norm_kind));
  }
  if (s.inner_norm) inner_norm_ = register_module("norm", std::make_shared<LayerNorm>(inner, s.norm_eps, s.norm_kind));
  if (s.gate != "none") {
    gate_ = register_module("gate", torch::nn::Linear(torch::nn::LinearOptions(s.width, inner).bias(s.gate == "biased")));
    if (gate_->bias.defined()) torch::nn::init::ones_(gate_->bias);  // the gate starts almost open
  }
  if (out_proj_) register_module("out_proj", out_proj_);
}

at::Tensor MultiHeadAttention::forward(const at::Tensor& x, const AttentionMask& mask, const Rotation& rotation) {
  if (weights_.size() > 1) return forward(x, x, mask);
  if (!changes_queries_or_keys(rotation) && adapters().empty())
    return project(self_attention(fused_projection(x), heads_, mask), x);
  const std::vector<at::Tensor> qkv = queries_keys_values(x, rotation);
  return project(attend(qkv[0], qkv[1], qkv[2], heads_, mask), x);
}

// Returns the queries, keys and values of tokens one after another.
at::Tensor MultiHeadAttention::fused_projection(const at::Tensor& x) const {
  const at::Tensor packed = PackedWeights::map(x, weights_[0], input_bias());
  return packed.defined() ? packed : at::linear(x, weights_[0], input_bias());
}

// Returns the bias of the fused projection, with 0 for a part without a bias.
at::Tensor MultiHeadAttention::input_bias() const {
  if (biases_.size() <= 1) return biases_.empty() ? at::Tensor() : biases_[0];
  std::vector<at::Tensor> parts;
  for (const at::Tensor& bias : biases_)
    parts.push_back(bias.defined() ? bias : at::zeros({parts.empty() ? inner_ : key_inner_}, weights_[0].options()));
  return at::cat(parts);
}

std::vector<at::Tensor> MultiHeadAttention::queries_keys_values(const at::Tensor& x, const Rotation& rotation) const {
  TORCH_CHECK(weights_.size() == 1, "MultiHeadAttention: queries, keys and values have separate weights");
  std::vector<at::Tensor> qkv = split(fused_projection(x));
  add_updates(x, {{"query", qkv[0]}, {"key", qkv[1]}, {"value", qkv[2]}}, is_training());
  return prepared(std::move(qkv), rotation);
}

// Normalizes and rotates queries and keys, and repeats keys and values for the heads that share them.
std::vector<at::Tensor> MultiHeadAttention::prepared(std::vector<at::Tensor> qkv, const Rotation& rotation) const {
  const auto one = [&](const at::Tensor& given, std::int64_t heads, const std::shared_ptr<LayerNorm>& norm) {
    at::Tensor out = given;
    if (norm)
      out = norm->forward(out.unflatten(-1, {heads, out.size(-1) / heads})).flatten(-2).to(given.scalar_type());
    return rotated(out, heads, rotation);
  };
  qkv[0] = one(qkv[0], heads_, query_norm_);
  qkv[1] = one(qkv[1], key_heads_, key_norm_);
  if (query_factor_ != 1) qkv[0] = qkv[0] * query_factor_;
  if (key_heads_ == heads_) return qkv;
  for (at::Tensor* each : {&qkv[1], &qkv[2]})
    *each = each->unflatten(-1, {key_heads_, inner_ / heads_}).repeat_interleave(heads_ / key_heads_, -2).flatten(-2);
  return qkv;
}

MapParameters map_under_autocast(const at::Tensor& weight, const at::Tensor& bias) {
  const at::Tensor copy = autocast_copy(weight);
  return {weight, bias, copy.is_same(weight) ? at::Tensor() : copy.detach()};
}

bool MultiHeadAttention::add_to(BlockParts& parts, const AttentionMask& mask, const Rotation& rotation) const {
  const bool usual = weights_.size() == 1 && weights_[0].size(0) == 3 * inner_ && inner_ == weights_[0].size(1);
  if (!usual || inner_norm_ || gate_ || (query_norm_ && !query_norm_->has_bias()) ||
      (mask.allowed.defined() && mask.allowed.requires_grad()) || !adapters().empty())
    return false;
  parts.qkv = map_under_autocast(weights_[0], input_bias());
  parts.out = map_under_autocast(out_proj_->weight, out_proj_->bias);
  for (const auto& norm : {query_norm_, key_norm_})
    if (norm) parts.attention_parameters.insert(parts.attention_parameters.end(), {norm->weight(), norm->bias()});
  parts.attention = [this, mask, rotation](const at::Tensor& qkv) {
    if (!changes_queries_or_keys(rotation)) return self_attention(qkv, heads_, mask);
    const std::vector<at::Tensor> each = prepared(split(qkv), rotation);
    return attend(each[0], each[1], each[2], heads_, mask);
  };
  return true;
}

at::Tensor MultiHeadAttention::project(const at::Tensor& attended, const at::Tensor& x) {
  at::Tensor inner = inner_norm_ ? inner_norm_->forward(attended).to(attended.scalar_type()) : attended;
  if (gate_) inner = inner * linear(gate_, x).sigmoid();
  if (!out_proj_) return inner;
  at::Tensor out = linear(out_proj_, inner);
  add_updates(inner, {{"out", out}}, is_training());
  return out;
}

at::Tensor MultiHeadAttention::forward(const at::Tensor& query, const at::Tensor& keys, const AttentionMask& mask) {
  if (out_proj_ && !query_norm_ && !biases_.empty()) return multi_head_attention(query, keys, projections(), heads_, mask);
  TORCH_CHECK(weights_.size() == 1 && !gate_, "MultiHeadAttention: attention to other tokens without biases or with norms needs fused weights");
  const std::vector<at::Tensor> weights = weights_[0].split_with_sizes({inner_, key_inner_, key_inner_}, 0);
  const std::vector<at::Tensor> biases = biases_.empty() ? std::vector<at::Tensor>(3) : split(input_bias());
  const auto projected = [&](const at::Tensor& x, std::size_t part) { return at::linear(x, weights[part], biases[part]); };
  const std::vector<at::Tensor> qkv =
      prepared({projected(query, 0).expand({keys.size(0), -1, -1}), projected(keys, 1), projected(keys, 2)}, {});
  return project(attend(qkv[0], qkv[1], qkv[2], heads_, mask), query);
}

void MultiHeadAttention::initialize(double input_deviation, double output_deviation) {
  for (const at::Tensor& weight : weights_) torch::nn::init::normal_(weight, 0.0, input_deviation);
  if (gate_) torch::nn::init::normal_(gate_->weight, 0.0, input_deviation);
  if (out_proj_) torch::nn::init::normal_(out_proj_->weight, 0.0, output_deviation);
}

std::vector<LinearMap> MultiHeadAttention::linear_maps() const {
  if (weights_.size() > 1) return {};
  const char* const fused = "in_proj_weight";
  return {{"query", "query", fused, 0, inner_},
          {"key", "key", fused, inner_, key_inner_},
          {"value", "value", fused, inner_ + key_inner_, key_inner_},
          {"out", "out", "out_proj.weight", 0, out_proj_->weight.size(0)}};
}

std::vector<at::Tensor> MultiHeadAttention::projections() const {
  TORCH_CHECK(adapters().empty(), "MultiHeadAttention: adapters support only self-attention");
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
