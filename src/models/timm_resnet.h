#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>

#include <tessera/models/tower.h>

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

std::optional<config::Problem> validate(const TimmResnetSettings& settings);

class TimmResnetBlock;

/// ResNet (He et al. 2016) and ResNeXt in timm's form. The tokens are the positions of the last stage's map in row-major order. Parameters
/// and buffers have timm's names (conv1, bn1, layer1.0.conv1, layer1.0.downsample.0). Use it with the read-out `gap`. CLIP's own ResNet is
/// the encoder modified_resnet.
class TimmResnet : public Encoder {
 public:
  explicit TimmResnet(const TimmResnetSettings& settings);
  Encoded encode(const TowerInput& input) override;
  std::int64_t width() const override;
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

}  // namespace tessera
