#include <cmath>

#include <ATen/ATen.h>

#include "src/models/position_embedding.h"
#include "src/models/readouts/attention_pool_2d.h"

namespace tessera {

AttentionPool2d::AttentionPool2d(const AttentionPool2dSettings& settings, const ReadOutContext& context)
    : output_width_(settings.output_dim), grid_(context.grid) {
  if (context.tokens == 0 || context.modality == Modality::text)
    user_error(context.path, ": attention_pool_2d needs an image encoder with a fixed number of tokens");
  if (context.width % settings.heads != 0)
    user_error(context.path, ".heads: ", settings.heads, " does not divide the token width ", context.width);
  const double deviation = 1.0 / std::sqrt(static_cast<double>(context.width));
  positional_embedding_ =
      register_parameter("positional_embedding", deviation * at::randn({context.tokens + 1, context.width}));
  const MultiHeadAttentionSettings attention{
      .width = context.width, .heads = settings.heads, .output_width = settings.output_dim, .linears = true};
  attn_ = register_module("attn", std::make_shared<MultiHeadAttention>(attention));
  attn_->initialize(deviation, deviation);
}

ReadOutOutput AttentionPool2d::forward(const Encoded& encoded, const ViewNeeds& /*needs*/) {
  at::Tensor x;  // [B, 1 + N, w]
  if (encoded.class_token.defined()) {
    x = at_least_float(encoded.with_class_token());
  } else {
    TORCH_CHECK(!encoded.mask.defined(), "attention_pool_2d: padding needs a class token");
    x = at_least_float(encoded.tokens);
    x = at::cat({x.mean(1, /*keepdim=*/true), x}, 1) + positional_embedding_;
  }
  const AttentionMask mask = attention_mask(encoded.mask_with_class_token(), x.size(1));
  return {attn_->forward(x.slice(1, 0, 1), x, mask).squeeze(1), {}, {}};
}

std::string AttentionPool2d::state_dict_key(const std::string& parameter) const {
  constexpr std::string_view kAttention = "attn.", kOutput = "attn.out_proj.";
  if (parameter.starts_with(kOutput)) return concat("attnpool.c_proj.", parameter.substr(kOutput.size()));
  if (parameter.starts_with(kAttention)) return concat("attnpool.", parameter.substr(kAttention.size()));
  return "attnpool." + parameter;
}

at::Tensor AttentionPool2d::adapt_weight(const std::string& name, const at::Tensor& stored) const {
  return name == "positional_embedding" ? fit_position_embedding(stored, grid_, 1, positional_embedding_.size(1))
                                        : stored;
}

}  // namespace tessera
