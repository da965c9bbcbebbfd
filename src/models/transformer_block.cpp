#include <cmath>

#include <ATen/ATen.h>
#include <torch/nn/init.h>

#include "src/models/block_inputs.h"
#include "src/models/last_block.h"
#include "src/models/transformer.h"
#include "src/ops/packed_weights.h"

namespace tessera {

Mlp::Mlp(const MlpShape& shape)
    : activation_(shape.activation),
      c_fc_(torch::nn::LinearOptions(shape.width, shape.hidden).bias(shape.bias)),
      c_proj_(torch::nn::LinearOptions(shape.hidden, shape.width).bias(shape.bias)) {
  if (shape.input_norm) norm_in_ = register_module("norm_in", std::make_shared<LayerNorm>(shape.width, shape.norm_eps, shape.norm_kind));
  if (shape.gated) c_gate_ = register_module("c_gate", torch::nn::Linear(c_fc_->options));
  register_module("c_fc", c_fc_);
  if (shape.norm) norm_ = register_module("norm", std::make_shared<LayerNorm>(shape.hidden, shape.norm_eps, shape.norm_kind));
  register_module("c_proj", c_proj_);
}

at::Tensor Mlp::forward(const at::Tensor& given, const SequenceInfo& /*sequence*/) {
  const at::Tensor x = norm_in_ ? norm_in_->forward(given) : given;
  const bool plain = !c_gate_ && adapters().empty();
  at::Tensor hidden = plain ? PackedWeights::map(x, c_fc_->weight, c_fc_->bias, activation_) : at::Tensor();
  if (!hidden.defined()) {
    at::Tensor inner = linear(c_fc_, x), gate = c_gate_ ? linear(c_gate_, x) : at::Tensor();
    add_updates(x, {{"in", inner}, {"gate", gate}}, is_training());
    hidden = gate.defined() ? activate(gate, activation_) * inner : activate(inner, activation_);
  }
  if (norm_) hidden = norm_->forward(hidden).to(hidden.scalar_type());
  at::Tensor out = linear(c_proj_, hidden);
  add_updates(hidden, {{"out", out}}, is_training());
  return out;
}

std::vector<LinearMap> Mlp::linear_maps() const {
  const std::int64_t hidden = c_fc_->weight.size(0);
  std::vector<LinearMap> maps = {{"mlp_in", "in", "c_fc.weight", 0, hidden},
                                 {"mlp_out", "out", "c_proj.weight", 0, c_proj_->weight.size(0)}};
  if (c_gate_) maps.push_back({"mlp_in", "gate", "c_gate.weight", 0, hidden});
  return maps;
}

bool Mlp::add_to(BlockParts& parts) const {
  if (norm_ || norm_in_ || !adapters().empty()) return false;
  const auto map = [](const torch::nn::Linear& layer) { return map_under_autocast(layer->weight, layer->bias); };
  if (c_gate_) parts.gate = map(c_gate_);
  parts.fc = map(c_fc_);
  parts.projection = map(c_proj_);
  parts.activation = activation_;
  return true;
}

void Mlp::initialize(double fc_deviation, double projection_deviation) {
  torch::nn::init::normal_(c_fc_->weight, 0.0, fc_deviation);
  torch::nn::init::normal_(c_proj_->weight, 0.0, projection_deviation);
}

TransformerBlock::TransformerBlock(const TransformerSettings& s, BlockInitialization initialization,
                                   std::shared_ptr<FeedForward> feed_forward, bool first)
    : norms_(norm_place(s.block_norm)) {
  const double width = static_cast<double>(s.width);
  const double projection_deviation = 1.0 / std::sqrt(width * 2.0 * static_cast<double>(s.layers));
  const auto norm = [&](const char* name) { return register_module(name, std::make_shared<LayerNorm>(s.width, s.norm_eps, s.norm)); };
  if (!first || s.first_norm) ln_1_ = norm("ln_1");
  attn_ = register_module(
      "attn", std::make_shared<MultiHeadAttention>(MultiHeadAttentionSettings{.width = s.width,
                                                                              .heads = s.heads,
                                                                              .inner_width = s.heads * head_width(s),
                                                                              .input_bias = s.qkv_bias,
                                                                              .output_bias = s.out_bias,
                                                                              .key_heads = s.key_heads.value_or(0),
                                                                              .score_scale = s.score_scale,
                                                                              .gate = s.attention_gate,
                                                                              .query_key_norm = s.qk_norm,
                                                                              .inner_norm = s.attention_norm,
                                                                              .norm_eps = s.norm_eps,
                                                                              .norm_kind = s.norm}));
  if (initialization == BlockInitialization::text) attn_->initialize(1.0 / std::sqrt(width), projection_deviation);
  ln_2_ = norm("ln_2");
  if (norms_ == NormPlace::both) {
    ln_1_post_ = norm("ln_1_post");
    ln_2_post_ = norm("ln_2_post");
  }
  if (!feed_forward) {
    const auto mlp = std::make_shared<Mlp>(MlpShape{.width = s.width,
                                                    .hidden = mlp_width(s),
                                                    .activation = s.activation,
                                                    .gated = s.mlp == "gated",
                                                    .bias = s.mlp_bias,
                                                    .norm = s.mlp_norm,
                                                    .input_norm = s.mlp_input_norm,
                                                    .norm_eps = s.norm_eps,
                                                    .norm_kind = s.norm});
    if (initialization == BlockInitialization::text)
      mlp->initialize(1.0 / std::sqrt(2.0 * width), projection_deviation);
    feed_forward = mlp;
  }
  mlp_ = register_module("mlp", std::move(feed_forward));
  if (s.layer_scale_init) {
    ls_1_ = register_module("ls_1", std::make_shared<LayerScale>(s.width, *s.layer_scale_init));
    ls_2_ = register_module("ls_2", std::make_shared<LayerScale>(s.width, *s.layer_scale_init));
  }
}

TransformerBlock::NormPlace TransformerBlock::norm_place(const std::string& block_norm) {
  if (block_norm == "after") return NormPlace::after;
  if (block_norm == "on_updates") return NormPlace::on_updates;
  return block_norm == "both" ? NormPlace::both : NormPlace::before;
}

at::Tensor TransformerBlock::forward(const at::Tensor& x, const SequenceInfo& sequence, const at::Tensor& factors) {
  return residual_sum(forward(ResidualStream{x, {}}, sequence, factors));
}

ResidualStream TransformerBlock::forward(const ResidualStream& given, const SequenceInfo& sequence, const at::Tensor& factors) {
  const ResidualStream stream = BlockInputs::recording() ? ResidualStream{BlockInputs::seen(residual_sum(given)), {}} : given;
  BlockParts parts;
  if (BlockPath::is_one_function(stream.x) && add_to(parts, sequence, factors)) return transformer_block(stream, parts);
  return {composed(residual_sum(stream), sequence, factors), {}};
}

ResidualUpdate TransformerBlock::update_of(const at::Tensor& value, const at::Tensor& factors) const {
  if (!value.defined()) return {};
  const auto& mlp = dynamic_cast<const Mlp&>(*mlp_);  // other parts leave no update
  return {value, mlp.output_bias(), ls_2_ ? ls_2_->gamma() : at::Tensor(), factors.defined() ? factors.select(1, 1) : at::Tensor()};
}

// Adds everything to the parts of a block that runs as one function. Returns false if such a function cannot run this block.
bool TransformerBlock::add_to(BlockParts& parts, const SequenceInfo& sequence, const at::Tensor& factors) const {
  const auto* mlp = dynamic_cast<const Mlp*>(mlp_.get());
  if (norms_ != NormPlace::before || !ln_1_ || !ln_1_->has_bias() || mlp == nullptr || !mlp->add_to(parts) ||
      !attn_->add_to(parts, sequence.mask, sequence.rotation))
    return false;
  parts.norm_1 = ln_1_->norm_parameters();
  parts.norm_2 = ln_2_->norm_parameters();
  if (ls_1_) {
    parts.scale_1 = ls_1_->gamma();
    parts.scale_2 = ls_2_->gamma();
  }
  if (factors.defined()) {
    parts.factors_1 = factors.select(1, 0);
    parts.factors_2 = factors.select(1, 1);
  }
  return true;
}

at::Tensor TransformerBlock::composed(const at::Tensor& input, const SequenceInfo& sequence, const at::Tensor& factors) {
  std::vector<std::int64_t> column_shape(static_cast<std::size_t>(input.dim()), 1);
  column_shape[0] = -1;
  const auto scaled = [&](at::Tensor update, const std::shared_ptr<LayerScale>& scale, std::int64_t column) {
    if (scale) update = scale->forward(update);
    return factors.defined() ? update * factors.select(1, column).view(column_shape) : update;
  };
  // Returns x [..., width] plus the update that `part` computes from it. norms_ decides where the norm is applied.
  using Norm = std::shared_ptr<LayerNorm>;
  const bool before = norms_ == NormPlace::before || norms_ == NormPlace::both;
  const auto updated = [&](const at::Tensor& x, const Norm& norm, const Norm& post, const std::shared_ptr<LayerScale>& scale,
                           std::int64_t column, const auto& part) {
    at::Tensor update = part(before && norm ? norm->forward(x) : x);
    if (norms_ == NormPlace::on_updates) update = norm->forward(update);
    if (post) update = post->forward(update);
    const at::Tensor sum = x + scaled(update, scale, column);
    return (norms_ == NormPlace::after ? norm->forward(sum) : sum).to(x.scalar_type());
  };
  const at::Tensor x = updated(input, ln_1_, ln_1_post_, ls_1_, 0,
                               [&](const at::Tensor& y) { return attn_->forward(y, sequence.mask, sequence.rotation); });
  return updated(x, ln_2_, ln_2_post_, ls_2_, 1, [&](const at::Tensor& y) { return mlp_->forward(y, sequence); });
}

std::vector<std::shared_ptr<torch::nn::Module>> TransformerBlock::adaptable_modules() const {
  std::vector<std::shared_ptr<torch::nn::Module>> out{attn_};
  if (dynamic_cast<Adaptable*>(mlp_.get()) != nullptr) out.push_back(mlp_);
  return out;
}

bool TransformerBlock::draws_for_tokens() const {
  const auto* mlp = dynamic_cast<const Adaptable*>(mlp_.get());
  return is_training() && (attn_->drops_tokens_inputs() || (mlp != nullptr && mlp->drops_tokens_inputs()));
}

at::Tensor TransformerBlock::forward_as(LastBlock kind, const at::Tensor& input, const SequenceInfo& sequence) {
  if (kind == LastBlock::plain) return forward(input, sequence);
  TORCH_CHECK(norms_ == NormPlace::before && ln_1_, "another last block: expected one with its norms before attention and MLP");
  const auto scaled = [](const at::Tensor& update, const std::shared_ptr<LayerScale>& scale) {
    return scale ? scale->forward(update) : update;
  };
  const at::Tensor normed = ln_1_->forward(input);
  const std::vector<at::Tensor> qkv = attn_->queries_keys_values(normed, sequence.rotation);
  const at::Tensor attended = attend_as(kind, qkv[0], qkv[1], qkv[2], attn_->heads(), sequence);
  const at::Tensor update = scaled(attn_->project(attended, normed), ls_1_);
  if (!keeps_residual(kind)) return update;
  const at::Tensor x = input + update;
  return x + scaled(mlp_->forward(ln_2_->forward(x), sequence), ls_2_);
}

}  // namespace tessera
