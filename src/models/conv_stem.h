#pragma once

#include <array>
#include <memory>
#include <vector>

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>

#include "src/models/layers.h"

namespace tessera {

/// Several convolutions that turn an image into patches. They replace a ViT's usual single convolution.
class PatchStem : public torch::nn::Module {
 public:
  static constexpr std::int64_t kStride = 16;
  /// Maps pixels [B, 3, H, W] -> [B, width, H / 16, W / 16].
  virtual at::Tensor forward(const at::Tensor& pixels) = 0;
};

/// MobileCLIP-B's stem (Vasu et al. 2024): three convolutions with strides 4, 2 and 2; the first two have batch norm and GELU. Parameters
/// are `0.conv`, `0.bn`, `1.conv`, `1.bn` and `2.conv`, as in timm.
class ConvStem : public PatchStem {
 public:
  /// `width` is the width of the patches, a multiple of 4.
  explicit ConvStem(std::int64_t width);
  at::Tensor forward(const at::Tensor& pixels) override;

 private:
  std::array<torch::nn::Conv2d, 3> convolutions_{{nullptr, nullptr, nullptr}};
  std::array<torch::nn::BatchNorm2d, 2> norms_{{nullptr, nullptr}};
};

class InvertedBottleneck;

/// ViTamin's stem (Chen et al. 2024): two convolutions with a LayerNorm between them, two stages of inverted
/// bottlenecks that halve the map, and a convolution that halves it again. Parameters are `stem.*`, `stages.0.0.*` ...
/// and `pool.*`, as in timm.
class VitaminStem : public PatchStem {
 public:
  /// `stage_widths` are the numbers of channels of the stages; `width` is the width of the patches.
  VitaminStem(const std::array<std::int64_t, 2>& stage_widths, std::int64_t width);
  at::Tensor forward(const at::Tensor& pixels) override;

 private:
  torch::nn::Conv2d first_, second_, last_;
  std::shared_ptr<LayerNorm> first_norm_, last_norm_;
  std::vector<std::shared_ptr<InvertedBottleneck>> blocks_;
};

}  // namespace tessera
