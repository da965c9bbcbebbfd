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
      out_proj_(torch::nn::LinearOptions(or_else(s.inner_width, s.width), or_else(s.output_width, s.width)).bias(s.output_bias)) {
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
    if (s.input_bias == "all") {
      biases_ = {register_parameter("in_proj_bias", at::zeros({3 * inner}))};
    } else if (s.input_bias != "none") {
      TORCH_CHECK(weights_.size() == 1, "MultiHeadAttention: input_bias ", s.input_bias, " needs a fused projection");
      for (const char* part : {"query", "key", "value"})
        biases_.push_back(has_bias(s.input_bias, part) ? register_parameter(std::string(1, part[0]) + "_bias", at::zeros({inner}))
                                                       : at::Tensor());
    }
    if (s.output_bias) torch::nn::init::zeros_(out_proj_->bias);
  }
  if (s.query_key_norm) {
    query_norm_ = register_module("q_norm", std::make_shared<LayerNorm>(inner / heads_, s.norm_eps));
    key_norm_ = register_module("k_norm", std::make_shared<LayerNorm>(inner / heads_, s.norm_eps));
  }
  if (s.inner_norm) inner_norm_ = register_module("norm", std::make_shared<LayerNorm>(inner, s.norm_eps));
  register_module("out_proj", out_proj_);
}

at::Tensor MultiHeadAttention::forward(const at::Tensor& x, const AttentionMask& mask, const Rotation& rotation) {
  if (weights_.size() > 1) return forward(x, x, mask);
  if (!changes_queries_or_keys(rotation) && adapters().empty())
    return project(self_attention(fused_projection(x), heads_, mask));
  const std::vector<at::Tensor> qkv = queries_keys_values(x, rotation);
  return project(attend(qkv[0], qkv[1], qkv[2], heads_, mask));
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
    parts.push_back(bias.defined() ? bias : at::zeros({weights_[0].size(0) / 3}, weights_[0].options()));
  return at::cat(parts);
}

std::vector<at::Tensor> MultiHeadAttention::queries_keys_values(const at::Tensor& x, const Rotation& rotation) const {
  TORCH_CHECK(weights_.size() == 1, "MultiHeadAttention: queries, keys and values have separate weights");
  std::vector<at::Tensor> qkv = fused_projection(x).chunk(3, -1);
  add_updates(x, {{"query", qkv[0]}, {"key", qkv[1]}, {"value", qkv[2]}}, is_training());
  return prepared(std::move(qkv), rotation);
}

// Normalizes and rotates queries and keys.
std::vector<at::Tensor> MultiHeadAttention::prepared(std::vector<at::Tensor> qkv, const Rotation& rotation) const {
  const auto one = [&](const at::Tensor& given, const std::shared_ptr<LayerNorm>& norm) {
    at::Tensor out = given;
    if (norm)
      out = norm->forward(out.unflatten(-1, {heads_, out.size(-1) / heads_})).flatten(-2).to(given.scalar_type());
    return rotated(out, heads_, rotation);
  };
  qkv[0] = one(qkv[0], query_norm_);
  qkv[1] = one(qkv[1], key_norm_);
  return qkv;
}

MapParameters map_under_autocast(const at::Tensor& weight, const at::Tensor& bias) {
  const at::Tensor copy = autocast_copy(weight);
  return {weight, bias, copy.is_same(weight) ? at::Tensor() : copy.detach()};
}

bool MultiHeadAttention::add_to(BlockParts& parts, const AttentionMask& mask, const Rotation& rotation) const {
  if (weights_.size() > 1 || inner_norm_ || !adapters().empty()) return false;
  parts.qkv = map_under_autocast(weights_[0], input_bias());
  parts.out = map_under_autocast(out_proj_->weight, out_proj_->bias);
  for (const auto& norm : {query_norm_, key_norm_})
    if (norm) parts.attention_parameters.insert(parts.attention_parameters.end(), {norm->weight(), norm->bias()});
  parts.attention = [this, mask, rotation](const at::Tensor& qkv) {
    if (!changes_queries_or_keys(rotation)) return self_attention(qkv, heads_, mask);
    const std::vector<at::Tensor> each = prepared(qkv.chunk(3, -1), rotation);
    return attend(each[0], each[1], each[2], heads_, mask);
  };
  return true;
}

at::Tensor MultiHeadAttention::project(const at::Tensor& attended) {
  const at::Tensor x = inner_norm_ ? inner_norm_->forward(attended).to(attended.scalar_type()) : attended;
  at::Tensor out = linear(out_proj_, x);
  add_updates(x, {{"out", out}}, is_training());
  return out;
}

at::Tensor MultiHeadAttention::forward(const at::Tensor& query, const at::Tensor& keys, const AttentionMask& mask) {
  return multi_head_attention(query, keys, projections(), heads_, mask);
}

void MultiHeadAttention::initialize(double input_deviation, double output_deviation) {
  for (const at::Tensor& weight : weights_) torch::nn::init::normal_(weight, 0.0, input_deviation);
  torch::nn::init::normal_(out_proj_->weight, 0.0, output_deviation);
}

std::vector<LinearMap> MultiHeadAttention::linear_maps() const {
  if (weights_.size() > 1) return {};
  const char* const fused = "in_proj_weight";
  const std::int64_t inner = weights_[0].size(0) / 3;
  return {{"query", "query", fused, 0, inner},
          {"key", "key", fused, inner, inner},
          {"value", "value", fused, 2 * inner, inner},
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
