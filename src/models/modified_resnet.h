#pragma once

#include <array>
#include <memory>
#include <optional>

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/conv.h>

#include "src/models/region_tokens.h"
#include <tessera/models/tower.h>

namespace tessera {

struct ModifiedResnetSettings {
  std::array<std::int64_t, 4> layers = {3, 4, 6, 3};
  std::int64_t width = 64;
  config::Size image_size = 224;
  std::optional<RegionSettings> regions;
};

template <class Visitor>
void fields(Visitor& v, ModifiedResnetSettings& s) {
  v("layers", s.layers, "number of bottleneck blocks in each of the four stages", config::in_range(1, config::kMostCount));
  v("width", s.width, "channels after the stem; the tokens are 32 times as wide", config::at_least(2));
  v("image_size", s.image_size, "pixels, a multiple of 32: one side for a square, or [height, width]");
  v("regions", s.regions,
    "region features as an image view, passed to the read-out: {width: 2052, class_token: mean}; null: none");
}

std::optional<config::Problem> validate(const ModifiedResnetSettings& settings);

/// CLIP's ResNet (Radford et al. 2021), with a stem of three convolutions and anti-aliased strides (2x2 mean before the convolution). The
/// tokens are the positions of the last stage's map in row-major order, 32 * width wide. Parameters have OpenCLIP's names; `attnpool`
/// belongs to the read-out attention_pool_2d. Region features add the parameters `roi_proj`, `roi_class_embedding` and `ln_pre`.
class ModifiedResnet : public Encoder {
 public:
  static constexpr std::int64_t kWidening = 32;  // ratio of the tokens' width to the stem's width
  explicit ModifiedResnet(const ModifiedResnetSettings& settings);
  Encoded encode(const TowerInput& input) override;
  std::int64_t depth() const override { return 5; }
  std::int64_t depth_of(const std::string& parameter) const override;
  std::int64_t width() const override { return settings_.width * kWidening; }
  std::int64_t region_width() const override { return settings_.regions ? settings_.regions->width : 0; }
  config::Size grid() const override { return {settings_.image_size.height / 32, settings_.image_size.width / 32}; }

 private:
  Encoded encode_regions(const at::Tensor& regions, const at::Tensor& mask);

  ModifiedResnetSettings settings_;
  std::array<torch::nn::Conv2d, 3> stem_convolutions_{{nullptr, nullptr, nullptr}};
  std::array<torch::nn::BatchNorm2d, 3> stem_norms_{{nullptr, nullptr, nullptr}};
  std::array<torch::nn::ModuleList, 4> stages_;
  std::unique_ptr<RegionTokens> region_tokens_;
  std::shared_ptr<LayerNorm> ln_pre_;
};

}  // namespace tessera
