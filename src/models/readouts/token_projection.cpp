#include <limits>

#include <ATen/ATen.h>
#include <torch/nn/init.h>

#include "src/models/attention.h"
#include "src/models/token_projection.h"
#include <tessera/ops/numeric.h>

namespace tessera {

TokenProjection::TokenProjection(const TokenProjectionSettings& settings, const ReadOutContext& context)
    : table_(context.shared->token_embedding) {
  if (!table_.defined())
    user_error(context.path,
               ": token_projection scores the token table of the text tower, but this model has none: "
               "give model.text an encoder with such a table (text_transformer)");
  const auto transform = register_module("transform", std::make_shared<torch::nn::Module>());
  dense_ = transform->register_module("dense", torch::nn::Linear(context.width, table_.size(1)));
  torch::nn::init::normal_(dense_->weight, 0, 0.02);  // BERT's initialization
  torch::nn::init::zeros_(dense_->bias);
  norm_ = transform->register_module("norm", std::make_shared<LayerNorm>(table_.size(1), settings.layer_norm_eps));
  bias_ = register_parameter("bias", at::zeros({table_.size(0)}));
  auto& shared = context.shared->special_token_ids;
  const auto& special = settings.special_token_ids ? settings.special_token_ids : shared;
  if (!special) return;
  for (const std::int64_t id : *special)
    if (id >= table_.size(0))
      user_error(context.path, ".special_token_ids: ", id, " is not in the vocabulary 0..", table_.size(0) - 1);
  special_ids_ = at::tensor(*special, at::kLong);
  if (!shared) shared = special;
}

at::Tensor TokenProjection::transform(const at::Tensor& tokens) {
  return norm_->forward(at::gelu(dense_(tokens)));
}

at::Tensor TokenProjection::masked_bias() {
  if (!special_ids_.defined()) return bias_;
  if (special_ids_.device() != bias_.device()) special_ids_ = special_ids_.to(bias_.device());
  return bias_.index_fill(0, special_ids_, -std::numeric_limits<double>::infinity());
}

TokenMaxProjection TokenProjection::project(const Encoded& encoded) {
  const at::Tensor real = at_least_float(zero_padding(encoded.tokens, encoded.mask));
  return token_max_projection(transform(real), encoded.mask, at_least_float(table_), masked_bias());
}

ReadOutOutput TokenProjection::forward(const Encoded& encoded, const ViewNeeds& /*needs*/) {
  return {project(encoded).encoding, {}, {}};
}

at::Tensor TokenProjection::activations(const at::Tensor& tokens, const at::Tensor& ids) {
  const at::Tensor hidden = transform(at_least_float(tokens));
  const NoAutocast no_autocast;
  return at::linear(hidden, table_.index_select(0, ids), bias_.index_select(0, ids));
}

}  // namespace tessera
