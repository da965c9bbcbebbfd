#include <ATen/ATen.h>
#include <torch/nn/init.h>

#include "src/models/attention.h"
#include "src/models/layers.h"
#include "src/models/modified_resnet.h"
#include "src/models/named_parts.h"

namespace tessera {
namespace {

torch::nn::Conv2d convolution(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride = 1) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

class Bottleneck : public torch::nn::Module {
 public:
  static constexpr std::int64_t kExpansion = 4;

  Bottleneck(std::int64_t in, std::int64_t planes, std::int64_t stride, bool downsample) : stride_(stride) {
    const std::array<std::int64_t, 4> channels = {in, planes, planes, planes * kExpansion};
    for (std::size_t i = 0; i < 3; ++i) {
      const std::string number = std::to_string(i + 1);
      convolutions_[i] = register_module("conv" + number, convolution(channels[i], channels[i + 1], i == 1 ? 3 : 1));
      norms_[i] = register_module("bn" + number, torch::nn::BatchNorm2d(channels[i + 1]));
    }
    torch::nn::init::zeros_(norms_[2]->weight);  // each block starts as the identity, as in CLIP
    if (!downsample) return;
    const auto names = register_module("downsample", std::make_shared<NamedParts>());
    around_ = names->add("0", convolution(in, channels[3], 1));
    around_norm_ = names->add("1", torch::nn::BatchNorm2d(channels[3]));
  }

  at::Tensor forward(const at::Tensor& x) {
    const auto pooled = [&](const at::Tensor& map) { return stride_ > 1 ? at::avg_pool2d(map, stride_) : map; };
    at::Tensor y = at::relu(batch_norm(norms_[0], convolutions_[0](x)));
    y = pooled(at::relu(batch_norm(norms_[1], convolutions_[1](y))));
    y = batch_norm(norms_[2], convolutions_[2](y));
    return at::relu(y + (around_ ? batch_norm(around_norm_, around_(pooled(x))) : x));
  }

 private:
  std::int64_t stride_;
  std::array<torch::nn::Conv2d, 3> convolutions_{{nullptr, nullptr, nullptr}};
  std::array<torch::nn::BatchNorm2d, 3> norms_{{nullptr, nullptr, nullptr}};
  torch::nn::Conv2d around_{nullptr};
  torch::nn::BatchNorm2d around_norm_{nullptr};
};

}  // namespace

std::optional<config::Problem> validate(const ModifiedResnetSettings& s) {
  const config::Size image = s.image_size;
  if (image.height < 32 || image.width < 32 || image.height % 32 != 0 || image.width % 32 != 0)
    return config::Problem{"image_size", concat(image.height, " x ", image.width, " is not a multiple of 32")};
  if (s.regions && s.regions->class_token == "shared")
    return config::Problem{"regions", "class_token: shared, but images have no class token here: set learned or mean"};
  if (s.width % 2 != 0) return config::Problem{"width", concat(s.width, " is odd, but the stem needs half of it")};
  return std::nullopt;
}

ModifiedResnet::ModifiedResnet(const ModifiedResnetSettings& settings) : settings_(settings) {
  const std::int64_t half = settings.width / 2;
  const std::array<std::int64_t, 4> channels = {3, half, half, settings.width};
  for (std::size_t i = 0; i < 3; ++i) {
    const std::string number = std::to_string(i + 1);
    stem_convolutions_[i] =
        register_module("conv" + number, convolution(channels[i], channels[i + 1], 3, i == 0 ? 2 : 1));
    stem_norms_[i] = register_module("bn" + number, torch::nn::BatchNorm2d(channels[i + 1]));
  }
  std::int64_t in = settings.width;
  for (std::size_t stage = 0; stage < 4; ++stage) {
    const std::int64_t planes = settings.width << stage;
    register_module("layer" + std::to_string(stage + 1), stages_[stage]);
    for (std::int64_t i = 0; i < settings.layers[stage]; ++i) {
      const std::int64_t stride = i == 0 && stage > 0 ? 2 : 1;
      stages_[stage]->push_back(std::make_shared<Bottleneck>(in, planes, stride, i == 0));
      in = planes * Bottleneck::kExpansion;
    }
  }
  if (!settings.regions) return;
  region_tokens_ =
      std::make_unique<RegionTokens>(*settings.regions, width(), /*class_token=*/true, at::Tensor(), *this);
  if (settings.regions->pre_norm) ln_pre_ = register_module("ln_pre", std::make_shared<LayerNorm>(width(), kNormEps));
}

// In layer-wise decay of the learning rate, each stage counts as a block.
std::int64_t ModifiedResnet::depth_of(const std::string& parameter) const {
  if (parameter.starts_with("roi_") || parameter.starts_with("ln_pre")) return depth();
  return parameter.starts_with("layer") ? parameter[5] - '0' : 0;
}

Encoded ModifiedResnet::encode(const TowerInput& input) {
  if (input.regions.defined()) return encode_regions(input.regions, input.mask);
  TORCH_CHECK(input.pixels.defined(), "modified_resnet: takes images or regions");
  const at::Tensor& image = input.pixels;
  const config::Size size = settings_.image_size;
  TORCH_CHECK(image.dim() == 4 && image.size(1) == 3 && image.size(2) == size.height && image.size(3) == size.width,
              "modified_resnet: images must be [B, 3, ", size.height, ", ", size.width, "], got ", image.sizes());
  at::Tensor x = image;
  for (std::size_t i = 0; i < 3; ++i) x = at::relu(batch_norm(stem_norms_[i], stem_convolutions_[i](x)));
  x = at::avg_pool2d(x, 2);
  for (const torch::nn::ModuleList& stage : stages_)
    for (const auto& block : *stage) x = static_cast<Bottleneck&>(*block).forward(x);
  Encoded out;
  out.tokens = x.flatten(2).transpose(1, 2);  // [B, HW, 32 w]
  out.grid = grid();
  return out;
}

// Regions skip the convolutions and go directly to the read-out.
Encoded ModifiedResnet::encode_regions(const at::Tensor& regions, const at::Tensor& mask) {
  TORCH_CHECK(region_tokens_, "modified_resnet: got region features, but the encoder has no setting `regions`");
  const at::Tensor x = region_tokens_->forward(regions, mask, ln_pre_.get()).tokens;
  Encoded out;
  out.class_token = x.select(1, 0);
  out.tokens = zero_padding(x.slice(1, 1), mask);
  out.mask = mask;
  return out;
}

}  // namespace tessera
