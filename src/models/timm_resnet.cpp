#include <ATen/ATen.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/container/modulelist.h>

#include "src/models/layers.h"
#include "src/models/named_parts.h"
#include "src/models/timm_resnet.h"

namespace tessera {
namespace {

torch::nn::Conv2d plain_convolution(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride = 1,
                              std::int64_t groups = 1) {
  torch::nn::Conv2d layer(torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).groups(groups).bias(false));
  torch::nn::init::kaiming_normal_(layer->weight, 0.0, torch::kFanOut, torch::kReLU);
  return layer;
}

std::int64_t timm_expansion(const TimmResnetSettings& s) {
  return s.block == "bottleneck" ? 4 : 1;
}

}  // namespace

class TimmResnetBlock : public torch::nn::Module {
 public:
  TimmResnetBlock(const TimmResnetSettings& s, std::int64_t in, std::int64_t planes, std::int64_t stride)
      : mean_stride_(s.mean_downsample ? stride : 1) {
    const std::int64_t out = planes * timm_expansion(s);
    if (s.block == "bottleneck") {
      const std::int64_t inner = planes * s.base_width / 64 * s.groups;
      add(plain_convolution(in, inner, 1));
      add(plain_convolution(inner, inner, 3, stride, s.groups));
      add(plain_convolution(inner, out, 1));
    } else {
      add(plain_convolution(in, planes, 3, stride));
      add(plain_convolution(planes, out, 3));
    }
    torch::nn::init::zeros_(norms_.back()->weight);  // each block starts as the identity
    if (stride == 1 && in == out) return;
    const auto names = register_module("downsample", std::make_shared<NamedParts>());
    // In timm's ResNet-D, the average pooling has index 0.
    around_ = names->add(s.mean_downsample ? "1" : "0", plain_convolution(in, out, 1, stride / mean_stride_));
    around_norm_ = names->add(s.mean_downsample ? "2" : "1", torch::nn::BatchNorm2d(out));
  }

  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = x, other = x;
    for (std::size_t i = 0; i < convolutions_.size(); ++i) {
      y = batch_norm(norms_[i], convolutions_[i](y));
      if (i + 1 < convolutions_.size()) y = at::relu(y);
    }
    if (around_) {
      if (mean_stride_ > 1)
        other = at::avg_pool2d(other, 2, mean_stride_, 0, /*ceil_mode=*/true, /*count_include_pad=*/false);
      other = batch_norm(around_norm_, around_(other));
    }
    return at::relu(y + other);
  }

 private:
  void add(const torch::nn::Conv2d& convolution) {
    const std::string number = std::to_string(convolutions_.size() + 1);
    convolutions_.push_back(register_module("conv" + number, convolution));
    norms_.push_back(register_module("bn" + number, torch::nn::BatchNorm2d(convolution->options.out_channels())));
  }

  std::int64_t mean_stride_;
  std::vector<torch::nn::Conv2d> convolutions_;
  std::vector<torch::nn::BatchNorm2d> norms_;
  torch::nn::Conv2d around_{nullptr};
  torch::nn::BatchNorm2d around_norm_{nullptr};
};

std::optional<config::Problem> validate(const TimmResnetSettings& s) {
  const config::Size image = s.image_size;
  if (image.height < 32 || image.width < 32) return config::Problem{"image_size", concat(image.height, " x ", image.width, " is below 32")};
  if (s.block == "basic" && (s.groups != 1 || s.base_width != 64))
    return config::Problem{"block", "basic has neither groups nor another base_width"};
  return std::nullopt;
}

TimmResnet::TimmResnet(const TimmResnetSettings& s) : settings_(s) {
  constexpr std::int64_t kStem = 64;
  if (s.stem == "plain") {
    stem_ = {register_module("conv1", plain_convolution(3, kStem, 7, 2))};
    stem_norms_ = {register_module("bn1", torch::nn::BatchNorm2d(kStem))};
  } else {
    const bool tiered = s.stem == "deep_tiered";
    const std::int64_t first = tiered ? 3 * s.stem_width / 4 : s.stem_width, second = s.stem_width;
    const std::int64_t out = 2 * s.stem_width;
    // In timm's `conv1`, convolutions and norms have the indices 0, 1, 3, 4 and 6; activations have 2 and 5.
    const auto names = register_module("conv1", std::make_shared<NamedParts>());
    stem_ = {names->add("0", plain_convolution(3, first, 3, 2)), names->add("3", plain_convolution(first, second, 3)),
             names->add("6", plain_convolution(second, out, 3))};
    stem_norms_ = {names->add("1", torch::nn::BatchNorm2d(first)), names->add("4", torch::nn::BatchNorm2d(second)),
                   register_module("bn1", torch::nn::BatchNorm2d(out))};
  }
  std::int64_t in = stem_.back()->options.out_channels();
  for (std::size_t stage = 0; stage < 4; ++stage) {
    const auto names = register_module("layer" + std::to_string(stage + 1), std::make_shared<NamedParts>());
    const std::int64_t planes = kStem << stage;
    for (std::int64_t i = 0; i < s.layers[stage]; ++i) {
      const std::int64_t stride = i == 0 && stage > 0 ? 2 : 1;
      blocks_.push_back(names->add(std::to_string(i), std::make_shared<TimmResnetBlock>(s, in, planes, stride)));
      in = planes * timm_expansion(s);
    }
  }
}

std::int64_t TimmResnet::width() const {
  return 512 * timm_expansion(settings_);
}

Encoded TimmResnet::encode(const TowerInput& input) {
  const at::Tensor& image = input.pixels;
  TORCH_CHECK(image.defined() && image.dim() == 4 && image.size(1) == 3 && image.size(2) >= 32 && image.size(3) >= 32,
              "timm_resnet: takes images [B, 3, H, W] of at least 32 pixels a side");
  at::Tensor x = image;
  for (std::size_t i = 0; i < stem_.size(); ++i) x = at::relu(batch_norm(stem_norms_[i], stem_[i](x)));
  x = at::max_pool2d(x, 3, 2, 1);
  for (const auto& block : blocks_) x = block->forward(x);
  Encoded out;
  out.grid = {x.size(2), x.size(3)};
  out.tokens = x.flatten(2).transpose(1, 2);
  return out;
}

}  // namespace tessera
