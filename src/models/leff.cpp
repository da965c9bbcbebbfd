#include <ATen/ATen.h>

#include "src/models/leff.h"

namespace tessera {

Leff::Leff(const LeffSettings& settings, std::int64_t width, std::int64_t hidden, std::string activation)
    : settings_(settings),
      activation_(std::move(activation)),
      c_fc_(width, hidden),
      c_proj_(hidden, width),
      dwconv_(torch::nn::Conv2dOptions(hidden, hidden, 3).padding(1).groups(hidden).bias(settings.conv_bias)) {
  register_module("c_fc", c_fc_);
  register_module("dwconv", dwconv_);
  // The maps are channels-last, and therefore the weight's gradient is, too. The weight gets the same strides as its
  // gradient, so that gradient reducers need not copy the gradient.
  dwconv_->weight.set_data(dwconv_->weight.as_strided({hidden, 1, 3, 3}, {9, 1, 3, 1}));
  register_module("c_proj", c_proj_);
  if (settings.norm == "batch") {
    bn_fc_ = register_module("bn_fc", torch::nn::BatchNorm2d(hidden));
    bn_conv_ = register_module("bn_conv", torch::nn::BatchNorm2d(hidden));
    bn_proj_ = register_module("bn_proj", torch::nn::BatchNorm2d(width));
  }
}

at::Tensor Leff::forward(const at::Tensor& x, const SequenceInfo& sequence) {
  const std::int64_t first = sequence.prefix;
  TORCH_CHECK(sequence.grid.height * sequence.grid.width == x.size(1) - first, "leff: ", x.size(1) - first,
              " patches do not form a grid of ", sequence.grid.height, " x ", sequence.grid.width);
  const at::Tensor update = patches_forward(x.slice(1, first), sequence.grid, first);
  if (first == 0) return update;
  const at::Tensor class_token = x.slice(1, 0, first).to(update.scalar_type());
  return at::cat({settings_.class_token == "identity" ? class_token : at::zeros_like(class_token), update}, 1);
}

// The maps [B, w, rows, columns] are views of the tokens and therefore channels-last, without a copy.
at::Tensor Leff::patches_forward(const at::Tensor& patches, config::Size grid, std::int64_t prefix) {
  const auto to_map = [&](const at::Tensor& x) {
    return x.unflatten(1, {grid.height, grid.width}).permute({0, 3, 1, 2});
  };
  const auto to_tokens = [](const at::Tensor& map) { return map.permute({0, 2, 3, 1}).flatten(1, 2); };
  const auto normalized = [](torch::nn::BatchNorm2d& norm, const at::Tensor& map) {
    return norm ? batch_norm(norm, map) : map;
  };
  at::Tensor inner = c_fc_(patches);
  add_updates(patches, {{"in", inner}}, is_training(), prefix);
  at::Tensor map = activate(normalized(bn_fc_, to_map(inner)), activation_);
  map = activate(normalized(bn_conv_, dwconv_(map)), activation_);
  const at::Tensor hidden = to_tokens(map);
  at::Tensor out = c_proj_(hidden);
  add_updates(hidden, {{"out", out}}, is_training(), prefix);
  map = normalized(bn_proj_, to_map(out));
  return to_tokens(settings_.out_activation ? activate(map, activation_) : map);
}

std::vector<LinearMap> Leff::linear_maps() const {
  return {{"mlp_in", "in", "c_fc.weight", 0, c_fc_->weight.size(0)},
          {"mlp_out", "out", "c_proj.weight", 0, c_proj_->weight.size(0)}};
}

}  // namespace tessera
