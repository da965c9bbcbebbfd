#include <ATen/ATen.h>
#include <torch/nn/modules/container/modulelist.h>

#include "src/models/fc_mlp.h"
#include "src/models/layers.h"
#include "src/models/mlp_head.h"

namespace tessera {

MlpHead::MlpHead(const MlpHeadSettings& settings, std::int64_t width, std::int64_t output_dim)
    : activation_(settings.activation),
      linear_out_(normal_linear(settings.num_layers == 1 ? width : settings.inner_dim, output_dim, kGroupVitDeviation, settings.bias)) {
  if (settings.num_layers == 2) {
    const auto both = register_module("linear_hidden", torch::nn::ModuleList());
    hidden_ = normal_linear(width, settings.inner_dim, kGroupVitDeviation, settings.hidden_bias);
    both->push_back(hidden_);
    if (settings.norm == "batch") both->push_back(norm_ = torch::nn::BatchNorm1d(settings.inner_dim));
  }
  register_module("linear_out", linear_out_);
}

at::Tensor MlpHead::forward(const at::Tensor& x) {
  if (hidden_.is_empty()) return linear_out_(x);
  const at::Tensor inner = hidden_(x);
  return linear_out_(activate(norm_.is_empty() ? inner : batch_norm(norm_, inner), activation_));
}

}  // namespace tessera
