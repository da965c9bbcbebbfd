#include <ATen/ATen.h>
#include <torch/nn/modules/container/modulelist.h>

#include <tessera/models/conv_stem.h>
#include <tessera/models/layers.h>

namespace tessera {
namespace {

/// Gives the parts of a step the names `conv` and `bn`.
class StemStep : public torch::nn::Module {
 public:
  StemStep(const torch::nn::Conv2d& convolution, const torch::nn::BatchNorm2d& norm) {
    register_module("conv", convolution);
    if (norm) register_module("bn", norm);
  }
};

}  // namespace

ConvStem::ConvStem(std::int64_t width) {
  const std::array<std::int64_t, 4> channels = {3, width / 4, width / 4, width};
  const std::array<std::int64_t, 3> strides = {4, 2, 2};
  for (std::size_t i = 0; i < 3; ++i) {
    const bool last = i == 2;
    convolutions_[i] = torch::nn::Conv2d(
        torch::nn::Conv2dOptions(channels[i], channels[i + 1], strides[i]).stride(strides[i]).bias(last));
    if (!last) norms_[i] = torch::nn::BatchNorm2d(channels[i + 1]);
    register_module(std::to_string(i), std::make_shared<StemStep>(convolutions_[i], last ? torch::nn::BatchNorm2d(nullptr) : norms_[i]));
  }
}

at::Tensor ConvStem::forward(const at::Tensor& pixels) {
  at::Tensor x = pixels;
  for (std::size_t i = 0; i < 2; ++i) x = at::gelu(batch_norm(norms_[i], convolutions_[i](x)));
  return convolutions_[2](x);
}

}  // namespace tessera
