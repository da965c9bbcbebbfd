#include <array>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/conv.h>

#include "src/models/add_module.h"
#include "src/models/layers.h"
#include "src/models/named_parts.h"

namespace tessera {

struct TimmResnetSettings {
  config::Size image_size = 224;
  std::array<std::int64_t, 4> layers = {3, 4, 6, 3};
  std::string block = "bottleneck";
  std::int64_t groups = 1;
  std::int64_t base_width = 64;
  std::string stem = "plain";
  std::int64_t stem_width = 64;
  bool mean_downsample = false;
};

template <class Visitor>
void fields(Visitor& v, TimmResnetSettings& s) {
  v("image_size", s.image_size, "pixels, at least 32: one side for a square, or [height, width]");
  v("layers", s.layers, "number of blocks in each of the four stages", config::in_range(1, config::kMostCount));
  v("block", s.block, "bottleneck (ResNet-50 and larger) or basic (ResNet-18, ResNet-34)",
    config::one_of({"bottleneck", "basic"}));
  v("groups", s.groups, "number of groups of the 3x3 convolutions (ResNeXt)", config::at_least(1));
  v("base_width", s.base_width, "channels of a group in the first stage", config::at_least(1));
  v("stem", s.stem, "plain: one 7x7 convolution; deep: three of 3x3; deep_tiered: three of 3x3 with increasing channels",
    config::one_of({"plain", "deep", "deep_tiered"}));
  v("stem_width", s.stem_width, "channels within a deep stem", config::at_least(1));
  v("mean_downsample", s.mean_downsample, "use a 2x2 mean instead of the strided convolution on a block's shortcut (ResNet-D)");
}

std::optional<config::Problem> validate(const TimmResnetSettings& s) {
  const config::Size image = s.image_size;
  if (image.height < 32 || image.width < 32) return config::Problem{"image_size", concat(image.height, " x ", image.width, " is below 32")};
  if (s.block == "basic" && (s.groups != 1 || s.base_width != 64))
    return config::Problem{"block", "basic has neither groups nor another base_width"};
  return std::nullopt;
}

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

/// ResNet (He et al. 2016) and ResNeXt in timm's form. The tokens are the positions of the last stage's map in row-major order. Parameters
/// and buffers have timm's names (conv1, bn1, layer1.0.conv1, layer1.0.downsample.0). Use it with the read-out `gap`. CLIP's own ResNet is
/// the encoder modified_resnet.
class TimmResnet : public Encoder {
 public:
  explicit TimmResnet(const TimmResnetSettings& s) : settings_(s) {
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

  Encoded encode(const TowerInput& input) override {
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

  std::int64_t width() const override { return 512 * timm_expansion(settings_); }
  config::Size grid() const override { return {(settings_.image_size.height + 31) / 32, (settings_.image_size.width + 31) / 32}; }
  /// For layer decay, each stage counts as a block.
  std::int64_t depth() const override { return 5; }
  std::int64_t depth_of(const std::string& parameter) const override {
    return parameter.starts_with("layer") ? parameter[5] - '0' : 0;
  }

 private:
  TimmResnetSettings settings_;
  std::vector<torch::nn::Conv2d> stem_;
  std::vector<torch::nn::BatchNorm2d> stem_norms_;
  std::vector<std::shared_ptr<TimmResnetBlock>> blocks_;
};

}  // namespace

void add_timm_resnet(EncoderRegistry& list) {
  add_encoder<TimmResnet, TimmResnetSettings>(list, "timm_resnet", "ResNet and ResNeXt as in timm; read-out gap");
}

}  // namespace tessera
