#include <cmath>

#include <ATen/ATen.h>
#include <torch/nn/init.h>

#include <tessera/models/attention.h>
#include <tessera/models/position_embedding.h>
#include <tessera/models/readouts/attention_pool_2d.h>

namespace tessera {

AttentionPool2d::AttentionPool2d(const AttentionPool2dSettings& settings, const ReadOutContext& context)
    : settings_(settings),
      grid_(context.grid),
      q_proj_(context.width, context.width),
      k_proj_(context.width, context.width),
      v_proj_(context.width, context.width),
      c_proj_(context.width, settings.output_dim) {
  if (context.tokens == 0 || context.modality == Modality::text)
    user_error(context.path, ": attention_pool_2d needs an image encoder with a fixed number of tokens");
  if (context.width % settings.heads != 0)
    user_error(context.path, ".heads: ", settings.heads, " does not divide the token width ", context.width);
  const double deviation = 1.0 / std::sqrt(static_cast<double>(context.width));
  positional_embedding_ =
      register_parameter("positional_embedding", deviation * at::randn({context.tokens + 1, context.width}));
  register_module("k_proj", k_proj_);
  register_module("q_proj", q_proj_);
  register_module("v_proj", v_proj_);
  register_module("c_proj", c_proj_);
  for (const torch::nn::Linear& linear : {q_proj_, k_proj_, v_proj_, c_proj_})
    torch::nn::init::normal_(linear->weight, 0.0, deviation);
}

ReadOutOutput AttentionPool2d::forward(const Encoded& encoded, const ViewNeeds& /*needs*/) {
  TORCH_CHECK(!encoded.mask.defined(), "attention_pool_2d: padding is not supported");
  at::Tensor x = at_least_float(encoded.tokens);
  x = at::cat({x.mean(1, /*keepdim=*/true), x}, 1) + positional_embedding_;  // [B, 1 + N, w]
  const at::Tensor pooled = attend(q_proj_(x.slice(1, 0, 1)), k_proj_(x), v_proj_(x), settings_.heads);
  return {c_proj_(pooled.squeeze(1)), {}, {}};
}

at::Tensor AttentionPool2d::adapt_weight(const std::string& name, const at::Tensor& stored) const {
  return name == "positional_embedding" ? fit_position_embedding(stored, grid_, 1, positional_embedding_.size(1))
                                        : stored;
}

}  // namespace tessera
