#include <cmath>

#include <ATen/ATen.h>

#include "src/models/readouts/map_pool.h"

namespace tessera {

MapPool::MapPool(const MapPoolSettings& settings, const ReadOutContext& context) : width_(context.width) {
  if (width_ % settings.heads != 0)
    user_error(context.path, ".heads: ", settings.heads, " does not divide the tokens' width ", width_);
  const std::int64_t hidden = settings.mlp_hidden > 0 ? settings.mlp_hidden : 4 * width_;
  probe_ = register_parameter("probe", at::randn({width_}) / std::sqrt(static_cast<double>(width_)));
  attention_ = register_module("attention", std::make_shared<MultiHeadAttention>(MultiHeadAttentionSettings{
                                                .width = width_, .heads = settings.heads}));
  layernorm_ = register_module("layernorm", std::make_shared<LayerNorm>(width_, settings.norm_eps));
  mlp_ = register_module("mlp", std::make_shared<Mlp>(MlpShape{
                                    .width = width_, .hidden = hidden, .activation = settings.activation}));
}

ReadOutOutput MapPool::forward(const Encoded& encoded, const ViewNeeds& /*needs*/) {
  Encoded clean = encoded;
  clean.tokens = zero_padding(encoded.tokens, encoded.mask);
  const at::Tensor tokens = clean.with_class_token();
  const AttentionMask mask = attention_mask(clean.mask_with_class_token(), tokens.size(1));
  const at::Tensor attended = attention_->forward(probe_.view({1, 1, width_}), tokens, mask);  // [B, 1, w]
  const at::Tensor pooled = attended + mlp_->forward(layernorm_->forward(attended), {});
  const at::Tensor rows = pooled.squeeze(1);
  if (!mask.has_key.defined()) return {rows, {}, {}};
  return {at::where(mask.has_key.flatten(1), rows, at::zeros({}, rows.options())), {}, {}};
}

}  // namespace tessera
