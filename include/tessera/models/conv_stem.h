#pragma once

#include <array>

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>

namespace tessera {

/// MobileCLIP-B's way from pixels to patches (Vasu et al. 2024): convolutions of strides 4, 2 and 2, the first two with
/// batch norm and GELU. Parameters are `0.conv`, `0.bn`, `1.conv`, `1.bn` and `2.conv`, as in timm.
class ConvStem : public torch::nn::Module {
 public:
  static constexpr std::int64_t kStride = 16;
  /// width: of the patches, a multiple of 4.
  explicit ConvStem(std::int64_t width);
  /// [B, 3, H, W] -> [B, width, H / 16, W / 16].
  at::Tensor forward(const at::Tensor& pixels);

 private:
  std::array<torch::nn::Conv2d, 3> convolutions_{{nullptr, nullptr, nullptr}};
  std::array<torch::nn::BatchNorm2d, 2> norms_{{nullptr, nullptr}};
};

}  // namespace tessera
