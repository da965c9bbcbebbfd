#include <array>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/conv.h>

#include "src/models/add_module.h"
#include "src/models/attention.h"
#include "src/models/layers.h"
#include "src/models/named_parts.h"
#include "src/models/per_sample_rng.h"

namespace tessera {

struct ConvNextSettings {
  config::Size image_size = 224;
  std::array<std::int64_t, 4> layers = {3, 3, 9, 3};
  std::array<std::int64_t, 4> widths = {96, 192, 384, 768};
  std::array<std::int64_t, 4> kernel_sizes = {7, 7, 7, 7};
  std::string stem = "patch";
  std::int64_t patch_size = 4;
  std::string activation = "gelu";
  double norm_eps = 1e-6;
  std::optional<double> layer_scale_init = 1e-6;
  bool response_norm = false;
  bool conv_mlp = false;
  bool conv_bias = true;
  bool norm_first = false;
  double drop_path = 0.0;
};

template <class Visitor>
void fields(Visitor& v, ConvNextSettings& s) {
  v("image_size", s.image_size, "pixels: one side for a square, or [height, width]");
  v("layers", s.layers, "blocks in each of the four stages", config::in_range(1, config::kMostCount));
  v("widths", s.widths, "channels of each stage; those of the last stage are the tokens' width", config::at_least(1));
  v("kernel_sizes", s.kernel_sizes, "side of each stage's depth-wise kernels, an odd number", config::at_least(1));
  v("stem", s.stem,
    "patch: one convolution of patch_size; overlap: two of stride 2; overlap_tiered: as overlap, with half the channels "
    "between them; overlap_act: as overlap, with an activation between them",
    config::one_of({"patch", "overlap", "overlap_tiered", "overlap_act"}));
  v("patch_size", s.patch_size, "pixels of the stem's patch", config::at_least(1));
  v("activation", s.activation, "activation of the MLPs", config::one_of({"gelu", "gelu_tanh", "quick_gelu", "silu", "relu"}));
  v("norm_eps", s.norm_eps, "epsilon of every LayerNorm", config::above(0));
  v("layer_scale_init", s.layer_scale_init, "initial value of LayerScale; null: none (ConvNeXt V2)");
  v("response_norm", s.response_norm, "global response normalization in the MLPs (ConvNeXt V2, Woo et al. 2023)");
  v("conv_mlp", s.conv_mlp, "whether files store the MLPs as 1x1 convolutions (timm's small models); the result is the same");
  v("conv_bias", s.conv_bias, "whether the convolutions have biases");
  v("norm_first", s.norm_first, "whether the last LayerNorm comes before the mean over positions instead of after it");
  v("drop_path", s.drop_path,
    "share of samples that skip the last block in training; for earlier blocks the share decreases linearly, to 0 at the first",
    config::in_half_open(0, 1));
}

std::optional<config::Problem> validate(const ConvNextSettings& s) {
  const std::int64_t stride = (s.stem == "patch" ? s.patch_size : 4) * 8;
  const config::Size image = s.image_size;
  if (image.height < stride || image.width < stride || image.height % stride != 0 || image.width % stride != 0)
    return config::Problem{"image_size", concat(image.height, " x ", image.width, " is not a multiple of ", stride)};
  for (const std::int64_t kernel : s.kernel_sizes)
    if (kernel % 2 == 0) return config::Problem{"kernel_sizes", concat(kernel, " is even")};
  return std::nullopt;
}

namespace {

constexpr double kConvNextDeviation = 0.02;
constexpr std::int64_t kMlpRatio = 4;

torch::nn::Conv2d convnext_convolution(torch::nn::Conv2dOptions options) {
  torch::nn::Conv2d out(options);
  torch::nn::init::normal_(out->weight, 0.0, kConvNextDeviation);
  if (out->bias.defined()) torch::nn::init::zeros_(out->bias);
  return out;
}

/// A linear map over the last dimension. Its weight is [out, in], or [out, in, 1, 1] as for a convolution.
class Dense : public torch::nn::Module {
 public:
  Dense(std::int64_t in, std::int64_t out, bool as_convolution) {
    at::Tensor weight = at::empty({out, in});
    torch::nn::init::normal_(weight, 0.0, kConvNextDeviation);
    weight_ = register_parameter("weight", as_convolution ? weight.view({out, in, 1, 1}) : weight);
    bias_ = register_parameter("bias", at::zeros({out}));
  }
  at::Tensor forward(const at::Tensor& x) { return at::linear(x, weight_.flatten(1), bias_); }

 private:
  at::Tensor weight_, bias_;
};

/// Global response normalization (Woo et al. 2023, eq. 1-3) of x [B, H, W, C].
class ResponseNorm : public torch::nn::Module {
 public:
  explicit ResponseNorm(std::int64_t width)
      : weight_(register_parameter("weight", at::zeros({width}))), bias_(register_parameter("bias", at::zeros({width}))) {}
  at::Tensor forward(const at::Tensor& given) {
    constexpr double kEps = 1e-6;
    const at::Tensor x = at_least_float(given);
    const at::Tensor lengths = x.square().sum({1, 2}, /*keepdim=*/true).sqrt();
    const at::Tensor relative = lengths / (lengths.mean(-1, /*keepdim=*/true) + kEps);
    return x + (bias_ + weight_ * (x * relative));
  }

 private:
  at::Tensor weight_, bias_;
};

/// Computes x + gamma * mlp(norm(conv(x))), where conv is a depth-wise convolution.
class ConvNextBlock : public torch::nn::Module {
 public:
  ConvNextBlock(const ConvNextSettings& s, std::size_t stage) : activation_(s.activation) {
    const std::int64_t width = s.widths[stage], kernel = s.kernel_sizes[stage];
    convolution_ = register_module(
        "conv_dw",
        convnext_convolution(torch::nn::Conv2dOptions(width, width, kernel).padding(kernel / 2).groups(width).bias(s.conv_bias)));
    norm_ = register_module("norm", std::make_shared<LayerNorm>(width, s.norm_eps));
    const auto mlp = register_module("mlp", std::make_shared<NamedParts>());
    up_ = mlp->add("fc1", std::make_shared<Dense>(width, kMlpRatio * width, s.conv_mlp));
    if (s.response_norm) response_norm_ = mlp->add("grn", std::make_shared<ResponseNorm>(kMlpRatio * width));
    down_ = mlp->add("fc2", std::make_shared<Dense>(kMlpRatio * width, width, s.conv_mlp));
    if (s.layer_scale_init) gamma_ = register_parameter("gamma", at::full({width}, *s.layer_scale_init));
  }

  /// map [B, C, H, W]. The factors [B] multiply each row's update (stochastic depth); if undefined, they are 1.
  at::Tensor forward(const at::Tensor& map, const at::Tensor& factors) {
    at::Tensor x = norm_->forward(convolution_(map).permute({0, 2, 3, 1}));  // [B, H, W, C]
    x = activate(up_->forward(x), activation_);
    if (response_norm_) x = response_norm_->forward(x);
    x = down_->forward(x);
    if (gamma_.defined()) x = x * gamma_;
    if (factors.defined()) x = x * factors.view({-1, 1, 1, 1});
    return map + x.permute({0, 3, 1, 2});
  }

 private:
  std::string activation_;
  torch::nn::Conv2d convolution_{nullptr};
  std::shared_ptr<LayerNorm> norm_;
  std::shared_ptr<Dense> up_, down_;
  std::shared_ptr<ResponseNorm> response_norm_;
  at::Tensor gamma_;
};

/// ConvNeXt (Liu et al. 2022) and ConvNeXt V2. The tokens are the positions of the last stage's map in row-major order. Parameters have
/// timm's names (stem.0, stages.0.blocks.0.conv_dw, head.norm). It is used with the read-out `gap`. Images may have any size that the
/// strides divide.
class ConvNext : public Encoder {
 public:
  explicit ConvNext(const ConvNextSettings& settings) : settings_(settings) {
    make_stem();
    const auto stages = register_module("stages", std::make_shared<NamedParts>());
    for (std::size_t stage = 0; stage < 4; ++stage) {
      const auto names = stages->add(std::to_string(stage), std::make_shared<NamedParts>());
      if (stage > 0) {
        const auto down = names->add("downsample", std::make_shared<NamedParts>());
        const std::int64_t from = settings.widths[stage - 1], to = settings.widths[stage];
        downsamples_[stage].norm = down->add("0", std::make_shared<LayerNorm>(from, settings.norm_eps));
        downsamples_[stage].convolution =
            down->add("1", convnext_convolution(torch::nn::Conv2dOptions(from, to, 2).stride(2).bias(settings.conv_bias)));
      }
      const auto blocks = names->add("blocks", std::make_shared<NamedParts>());
      for (std::int64_t i = 0; i < settings.layers[stage]; ++i)
        stages_[stage].push_back(blocks->add(std::to_string(i), std::make_shared<ConvNextBlock>(settings, stage)));
    }
    final_norm_ = std::make_shared<LayerNorm>(width(), settings.norm_eps);
    if (settings.norm_first)
      register_module("norm_pre", final_norm_);
    else
      register_module("head", std::make_shared<NamedParts>())->add("norm", final_norm_);
  }

  Encoded encode(const TowerInput& input) override {
    const at::Tensor& image = input.pixels;
    TORCH_CHECK(image.defined() && image.dim() == 4 && image.size(1) == 3 && image.size(2) % stride() == 0 &&
                    image.size(3) % stride() == 0 && image.size(2) > 0 && image.size(3) > 0,
                "convnext: takes images [B, 3, H, W] with H and W multiples of ", stride());
    const std::int64_t blocks = std::accumulate(settings_.layers.begin(), settings_.layers.end(), std::int64_t{0});
    at::Tensor draws;  // [B, blocks]
    if (settings_.drop_path > 0 && is_training()) draws = row_uniform(image.size(0), blocks, image.device());
    at::Tensor x = through_stem(image);
    std::int64_t number = 0;
    for (std::size_t stage = 0; stage < 4; ++stage) {
      Downsample& down = downsamples_[stage];
      if (down.norm) x = down.convolution(down.norm->forward_map(x));
      for (const auto& block : stages_[stage]) {
        at::Tensor factors;
        if (draws.defined()) {
          const auto last = static_cast<double>(std::max<std::int64_t>(1, blocks - 1));
          const double rate = settings_.drop_path * static_cast<double>(number) / last;
          factors = draws.select(1, number).ge(rate) / (1 - rate);
        }
        x = block->forward(x, factors);
        ++number;
      }
    }
    if (settings_.norm_first) x = final_norm_->forward_map(x);
    Encoded out;
    out.grid = {x.size(2), x.size(3)};
    out.tokens = x.flatten(2).transpose(1, 2);
    return out;
  }

  at::Tensor final_norm(const at::Tensor& pooled) override {
    return settings_.norm_first ? pooled : final_norm_->forward(pooled);
  }
  bool norms_pooled() const override { return !settings_.norm_first; }
  std::int64_t width() const override { return settings_.widths[3]; }
  config::Size grid() const override { return {settings_.image_size.height / stride(), settings_.image_size.width / stride()}; }
  bool draws_when_frozen() const override { return settings_.drop_path > 0; }
  /// For layer decay, the four stages count as blocks. Their parameters have the depths 1 to 4, and later parameters have depth 5
  /// (Encoder::depth_of()).
  std::int64_t depth() const override { return 5; }

  std::int64_t depth_of(const std::string& parameter) const override {
    constexpr std::string_view kStages = "stages.";
    if (parameter.starts_with(kStages)) return parameter[kStages.size()] - '0' + 1;
    return parameter.starts_with("stem.") ? 0 : depth();
  }

 private:
  // Names the stem's parts by their positions in a sequence. An activation also takes up a position, although it has no parameters.
  void make_stem() {
    const ConvNextSettings& s = settings_;
    const auto names = register_module("stem", std::make_shared<NamedParts>());
    const auto add = [&](int place, torch::nn::Conv2dOptions options) {
      stem_.push_back(names->add(std::to_string(place), convnext_convolution(options.bias(s.conv_bias))));
    };
    int last = 1;
    if (s.stem == "patch") {
      add(0, torch::nn::Conv2dOptions(3, s.widths[0], s.patch_size).stride(s.patch_size));
    } else {
      constexpr std::int64_t kDivisor = 8;
      // Like timm, rounds to the nearest multiple of 8. If this multiple is more than a tenth below the width, takes the next higher
      // multiple of 8 instead.
      const auto rounded = [&](std::int64_t width) {
        const std::int64_t near = std::max<std::int64_t>(kDivisor, (width + kDivisor / 2) / kDivisor * kDivisor);
        return 10 * near < 9 * width ? near + kDivisor : near;
      };
      const std::int64_t between = s.stem == "overlap_tiered" ? rounded(s.widths[0] / 2) : s.widths[0];
      const int second = s.stem == "overlap_act" ? 2 : 1;
      add(0, torch::nn::Conv2dOptions(3, between, 3).stride(2).padding(1));
      add(second, torch::nn::Conv2dOptions(between, s.widths[0], 3).stride(2).padding(1));
      last = second + 1;
    }
    stem_norm_ = names->add(std::to_string(last), std::make_shared<LayerNorm>(s.widths[0], s.norm_eps));
  }

  at::Tensor through_stem(const at::Tensor& pixels) {
    at::Tensor x = stem_[0](pixels.contiguous(at::MemoryFormat::ChannelsLast));
    if (settings_.stem == "overlap_act") x = activate(x, settings_.activation);
    if (stem_.size() > 1) x = stem_[1](x);
    return stem_norm_->forward_map(x);
  }

  std::int64_t stride() const { return (settings_.stem == "patch" ? settings_.patch_size : 4) * 8; }

  struct Downsample {
    std::shared_ptr<LayerNorm> norm;  // null in the first stage
    torch::nn::Conv2d convolution{nullptr};
  };

  ConvNextSettings settings_;
  std::vector<torch::nn::Conv2d> stem_;
  std::shared_ptr<LayerNorm> stem_norm_, final_norm_;
  std::array<Downsample, 4> downsamples_;
  std::array<std::vector<std::shared_ptr<ConvNextBlock>>, 4> stages_;
};

}  // namespace

void add_convnext(EncoderRegistry& list) {
  add_encoder<ConvNext, ConvNextSettings>(list, "convnext", "ConvNeXt and ConvNeXt V2 as in timm; read-out gap");
}

}  // namespace tessera
