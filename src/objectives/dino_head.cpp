#include <cmath>

#include <ATen/ATen.h>
#include <torch/nn/init.h>

#include "src/objectives/dino_head.h"
#include <tessera/ops/numeric.h>

namespace tessera {

DinoHead::DinoHead(const DinoHeadSettings& settings, std::int64_t width) {
  for (std::int64_t i = 0; i < settings.layers; ++i) {
    const std::int64_t in = i == 0 ? width : settings.hidden_dim,
                       out = i + 1 == settings.layers ? settings.bottleneck_dim : settings.hidden_dim;
    mlp_.emplace_back(in, out);
    torch::nn::init::normal_(mlp_.back()->weight, 0.0, 0.02);
    torch::nn::init::zeros_(mlp_.back()->bias);
  }
  if (settings.layers == 1) {
    register_module("mlp", mlp_.front());
  } else {
    const auto mlp = register_module("mlp", std::make_shared<torch::nn::Module>("mlp"));
    for (std::size_t i = 0; i < mlp_.size(); ++i) mlp->register_module(std::to_string(2 * i), mlp_[i]);
  }
  const auto last = register_module("last_layer", std::make_shared<torch::nn::Module>("last_layer"));
  weight_g_ = last->register_parameter("weight_g", at::ones({settings.out_dim, 1}),
                                       /*requires_grad=*/!settings.norm_last_layer);
  const double bound = 1.0 / std::sqrt(static_cast<double>(settings.bottleneck_dim));
  weight_v_ = last->register_parameter("weight_v",
                                       at::empty({settings.out_dim, settings.bottleneck_dim}).uniform_(-bound, bound));
}

at::Tensor DinoHead::bottleneck(const at::Tensor& input) {
  at::Tensor x = mlp_.front()(to_compute(input));
  for (std::size_t i = 1; i < mlp_.size(); ++i) x = mlp_[i](at::gelu(x));
  return unit_rows(x);
}

at::Tensor DinoHead::last_layer() const {
  return weight_v_ * (weight_g_ / weight_v_.norm(2, 1, /*keepdim=*/true));
}

at::Tensor DinoHead::forward(const at::Tensor& x) {
  return at::linear(bottleneck(x), last_layer());
}

}  // namespace tessera
