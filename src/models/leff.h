#pragma once

#include <string>

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "src/models/transformer_block.h"

namespace tessera {

struct LeffSettings {
  std::int64_t layers = 9;
  std::string norm = "none";
  bool conv_bias = true;
  bool out_activation = false;
  std::string class_token = "identity";
};

template <class Visitor>
void fields(Visitor& v, LeffSettings& s) {
  v("layers", s.layers, "number of blocks with LeFF, counted from the first", config::at_least(0));
  v("norm", s.norm, "normalization after each of the three maps: none, or batch (the published models)",
    config::one_of({"none", "batch"}));
  v("conv_bias", s.conv_bias, "whether the convolution has a bias (the published models: false)");
  v("out_activation", s.out_activation, "whether an activation follows the last map (the published models: true)");
  v("class_token", s.class_token,
    "identity: the class token's update is the normalized token itself (CeiT and the published models); skip: it gets no update",
    config::one_of({"identity", "skip"}));
}

/// The locally-enhanced feed-forward part of a block (Yuan et al. 2021; PyramidCLIP, figure 3c). A linear map widens the patches, a 3x3
/// depth-wise convolution over the image's grid mixes neighbors, and a linear map narrows the patches again. Parameters are `c_fc`,
/// `dwconv`, `c_proj`, with batch norms `bn_fc`, `bn_conv`, `bn_proj`.
class Leff : public FeedForward, public Adaptable {
 public:
  Leff(const LeffSettings& settings, std::int64_t width, std::int64_t hidden, std::string activation);
  /// Throws c10::Error if the sequence has no grid for its patches.
  at::Tensor forward(const at::Tensor& x, const SequenceInfo& sequence) override;
  std::vector<LinearMap> linear_maps() const override;

 private:
  /// `prefix` is the number of tokens before the patches.
  at::Tensor patches_forward(const at::Tensor& patches, config::Size grid, std::int64_t prefix);

  LeffSettings settings_;
  std::string activation_;
  torch::nn::Linear c_fc_, c_proj_;
  torch::nn::Conv2d dwconv_;
  torch::nn::BatchNorm2d bn_fc_{nullptr}, bn_conv_{nullptr}, bn_proj_{nullptr};
};

}  // namespace tessera
