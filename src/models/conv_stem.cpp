#include <ATen/ATen.h>

#include "src/models/conv_stem.h"
#include "src/models/layers.h"
#include "src/models/named_parts.h"

namespace tessera {
namespace {

constexpr double kVitaminEps = 1e-6;

torch::nn::Conv2d square_convolution(std::int64_t in, std::int64_t out, std::int64_t side, std::int64_t stride = 1, std::int64_t groups = 1) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, side).stride(stride).padding(side / 2).groups(groups));
}

}  // namespace

ConvStem::ConvStem(std::int64_t width) {
  const std::array<std::int64_t, 4> channels = {3, width / 4, width / 4, width};
  const std::array<std::int64_t, 3> strides = {4, 2, 2};
  for (std::size_t i = 0; i < 3; ++i) {
    const bool last = i == 2;
    convolutions_[i] = torch::nn::Conv2d(
        torch::nn::Conv2dOptions(channels[i], channels[i + 1], strides[i]).stride(strides[i]).bias(last));
    if (!last) norms_[i] = torch::nn::BatchNorm2d(channels[i + 1]);
    const auto step = register_module(std::to_string(i), std::make_shared<NamedParts>());
    step->add("conv", convolutions_[i]);
    if (!last) step->add("bn", norms_[i]);
  }
}

at::Tensor ConvStem::forward(const at::Tensor& pixels) {
  at::Tensor x = pixels;
  for (std::size_t i = 0; i < 2; ++i) x = at::gelu(batch_norm(norms_[i], convolutions_[i](x)));
  return convolutions_[2](x);
}

/// A 1x1 convolution to four times the output channels, a depth-wise 3x3 convolution, and a 1x1 convolution to the output channels, plus a
/// shortcut.
class InvertedBottleneck : public torch::nn::Module {
 public:
  /// strided: true if the block halves the map's height and width.
  InvertedBottleneck(std::int64_t in, std::int64_t out, bool strided) : strided_(strided) {
    const std::int64_t inner = (4 * out + 4) / 8 * 8;
    if (in != out) {
      shortcut_ = square_convolution(in, out, 1);
      register_module("shortcut", std::make_shared<NamedParts>())->add("expand", shortcut_);
    }
    norm_ = register_module("pre_norm", std::make_shared<LayerNorm>(in, kVitaminEps));
    up_ = register_module("conv1_1x1", square_convolution(in, inner, 1));
    between_ = register_module("conv2_kxk", square_convolution(inner, inner, 3, strided ? 2 : 1, inner));
    down_ = register_module("conv3_1x1", square_convolution(inner, out, 1));
  }

  at::Tensor forward(const at::Tensor& map) {
    at::Tensor shortcut = strided_ ? at::avg_pool2d(map, {3, 3}, {2, 2}, {1, 1}, /*ceil_mode=*/false, /*count_include_pad=*/false) : map;
    if (shortcut_) shortcut = shortcut_(shortcut);
    return shortcut + down_(at::gelu(between_(at::gelu(up_(norm_->forward_map(map))))));
  }

 private:
  bool strided_;
  torch::nn::Conv2d shortcut_{nullptr}, up_{nullptr}, between_{nullptr}, down_{nullptr};
  std::shared_ptr<LayerNorm> norm_;
};

VitaminStem::VitaminStem(const std::array<std::int64_t, 2>& stage_widths, std::int64_t width)
    : first_(square_convolution(3, stage_widths[0], 3, 2)),
      second_(square_convolution(stage_widths[0], stage_widths[0], 3)),
      last_(square_convolution(stage_widths[1], width, 3, 2)),
      first_norm_(std::make_shared<LayerNorm>(stage_widths[0], kVitaminEps)),
      last_norm_(std::make_shared<LayerNorm>(stage_widths[1], kVitaminEps)) {
  const auto stem = register_module("stem", std::make_shared<NamedParts>());
  stem->add("conv1", first_);
  stem->add("norm1", first_norm_);
  stem->add("conv2", second_);
  const auto stages = register_module("stages", std::make_shared<NamedParts>());
  constexpr std::array<int, 2> kBlocks = {2, 4};
  std::int64_t before = stage_widths[0];
  for (std::size_t stage = 0; stage < kBlocks.size(); ++stage) {
    const auto blocks = stages->add(std::to_string(stage), std::make_shared<NamedParts>());
    for (int i = 0; i < kBlocks[stage]; ++i) {
      blocks_.push_back(blocks->add(std::to_string(i), std::make_shared<InvertedBottleneck>(before, stage_widths[stage], i == 0)));
      before = stage_widths[stage];
    }
  }
  const auto pool = register_module("pool", std::make_shared<NamedParts>());
  pool->add("norm", last_norm_);
  pool->add("proj", last_);
}

at::Tensor VitaminStem::forward(const at::Tensor& pixels) {
  at::Tensor x = second_(at::gelu(first_norm_->forward_map(first_(pixels))));
  for (const auto& block : blocks_) x = block->forward(x);
  return last_(last_norm_->forward_map(x));
}

}  // namespace tessera
