#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "src/models/add_module.h"
#include "src/models/attention.h"
#include "src/models/layers.h"
#include "src/models/named_parts.h"
#include "src/models/per_sample_rng.h"

namespace tessera {

struct FastVitSettings {
  config::Size image_size = 256;
  std::vector<std::int64_t> layers = {2, 6, 10, 2};
  std::vector<std::int64_t> widths = {64, 128, 256, 512};
  double mlp_ratio = 3;
  std::int64_t attention_stages = 1;
  std::int64_t squeezed_stages = 2;
  std::string norm = "batch";
  bool stem_scale = true;
  bool downsample_activation = true;
  double layer_scale_init = 1e-5;
  double drop_path = 0.0;
};

template <class Visitor>
void fields(Visitor& v, FastVitSettings& s) {
  v("image_size", s.image_size, "pixels: one side for a square, or [height, width]");
  v("layers", s.layers, "blocks in each stage", config::in_range(1, config::kMostCount));
  v("widths", s.widths, "channels of each stage; the tokens are twice as wide as the last stage", config::at_least(1));
  v("mlp_ratio", s.mlp_ratio, "hidden channels of an MLP = int(channels * mlp_ratio)", config::above(0));
  v("attention_stages", s.attention_stages,
    "number of the last stages whose blocks have attention, in heads of 32 channels, and which begin with positions from a convolution",
    config::at_least(0));
  v("squeezed_stages", s.squeezed_stages, "number of the last stages that begin with squeeze and excitation", config::at_least(0));
  v("norm", s.norm, "norm before attention: batch, or layer (over the channels)", config::one_of({"batch", "layer"}));
  v("stem_scale", s.stem_scale, "whether the stem's convolutions have a branch of 1x1 (MobileCLIP 2's S3 and S4: false)");
  v("downsample_activation", s.downsample_activation, "whether an activation follows the large convolution that halves the map (MobileCLIP)");
  v("layer_scale_init", s.layer_scale_init, "initial value of LayerScale");
  v("drop_path", s.drop_path,
    "share of samples that skip an update of the last block in training; for earlier blocks the share decreases linearly, to 0 at the first",
    config::in_half_open(0, 1));
}

constexpr std::int64_t kFastHead = 32;

std::optional<config::Problem> validate(const FastVitSettings& s) {
  if (s.layers.empty() || s.layers.size() != s.widths.size())
    return config::Problem{"widths", concat("has ", s.widths.size(), " stages, but layers has ", s.layers.size())};
  const std::int64_t stages = std::ssize(s.layers);
  if (s.attention_stages > stages) return config::Problem{"attention_stages", concat("is ", s.attention_stages, " of ", stages, " stages")};
  for (std::int64_t i = stages - s.attention_stages; i < stages; ++i)
    if (s.widths[static_cast<std::size_t>(i)] % kFastHead != 0)
      return config::Problem{"widths", concat(s.widths[static_cast<std::size_t>(i)], " is not a multiple of ", kFastHead, ", the width of a head")};
  for (std::size_t i = 1; i < s.widths.size(); ++i)
    if (s.widths[i] % s.widths[i - 1] != 0)
      return config::Problem{"widths", concat(s.widths[i], " is not a multiple of ", s.widths[i - 1], ", the width of the stage before")};
  const std::int64_t stride = std::int64_t{4} << (stages - 1);
  if (s.image_size.height < stride || s.image_size.width < stride)
    return config::Problem{"image_size", concat(s.image_size.height, " x ", s.image_size.width, " is below ", stride)};
  return std::nullopt;
}

namespace {

/// A convolution without bias, `conv`, and a batch norm, `bn`.
class FastConvNorm : public torch::nn::Module {
 public:
  FastConvNorm(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride, std::int64_t groups)
      : conv_(register_module(
            "conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).groups(groups).bias(false)))),
        bn_(register_module("bn", torch::nn::BatchNorm2d(out))) {}
  at::Tensor forward(const at::Tensor& x) { return batch_norm(bn_, conv_(x)); }

 private:
  torch::nn::Conv2d conv_;
  torch::nn::BatchNorm2d bn_;
};

/// Squeeze and excitation (Hu et al. 2018): each channel is multiplied by a factor from the means of all channels.
class FastSqueeze : public torch::nn::Module {
 public:
  FastSqueeze(std::int64_t width, std::int64_t inner)
      : fc1_(register_module("fc1", torch::nn::Conv2d(torch::nn::Conv2dOptions(width, inner, 1)))),
        fc2_(register_module("fc2", torch::nn::Conv2d(torch::nn::Conv2dOptions(inner, width, 1)))) {}
  at::Tensor forward(const at::Tensor& x) { return x * fc2_(at::relu(fc1_(x.mean({2, 3}, /*keepdim=*/true)))).sigmoid(); }

 private:
  torch::nn::Conv2d fc1_, fc2_;
};

struct FastBranches {
  std::int64_t kernel = 1, stride = 1;
  bool depthwise = false, convolution = true, scale = true, activation = true, squeeze = false;
};

/// MobileOne's block (Vasu et al. 2023): the sum of a convolution, a 1x1 convolution and the input, each with a batch norm. After training,
/// the branches could be merged into one convolution.
class FastOneBlock : public torch::nn::Module {
 public:
  FastOneBlock(std::int64_t in, std::int64_t out, const FastBranches& b) : activation_(b.activation) {
    const std::int64_t groups = b.depthwise ? in : 1;
    constexpr std::int64_t kSqueeze = 16;
    if (b.squeeze) se_ = register_module("se", std::make_shared<FastSqueeze>(out, std::max<std::int64_t>(1, (out + kSqueeze / 2) / kSqueeze)));
    if (in == out && b.stride == 1) identity_ = register_module("identity", torch::nn::BatchNorm2d(in));
    if (b.convolution)
      conv_ = register_module("conv_kxk", std::make_shared<NamedParts>())
                  ->add("0", std::make_shared<FastConvNorm>(in, out, b.kernel, b.stride, groups));
    if (b.kernel > 1 && b.scale) scale_ = register_module("conv_scale", std::make_shared<FastConvNorm>(in, out, 1, b.stride, groups));
  }

  at::Tensor forward(const at::Tensor& x) {
    at::Tensor out;
    const auto add = [&](const at::Tensor& branch) { out = out.defined() ? out + branch : branch; };
    if (scale_) add(scale_->forward(x));
    if (identity_) add(batch_norm(identity_, x));
    if (conv_) add(conv_->forward(x));
    if (se_) out = se_->forward(out);
    return activation_ ? at::gelu(out) : out;
  }

 private:
  bool activation_;
  std::shared_ptr<FastSqueeze> se_;
  torch::nn::BatchNorm2d identity_{nullptr};
  std::shared_ptr<FastConvNorm> conv_, scale_;
};

/// Halves the map: depth-wise convolutions of 7x7 and 3x3, and a 1x1 block.
class FastDownsample : public torch::nn::Module {
 public:
  FastDownsample(std::int64_t in, std::int64_t out, bool squeeze, bool activation) : activation_(activation) {
    constexpr std::int64_t kLarge = 7, kSmall = 3, kStride = 2, kQuarter = 4, kMultiple = 8;
    const auto proj = register_module("proj", std::make_shared<NamedParts>());
    const auto first = proj->add("0", std::make_shared<NamedParts>());
    large_ = first->add("large_conv", std::make_shared<FastConvNorm>(in, out, kLarge, kStride, in));
    small_ = first->add("small_conv", std::make_shared<FastConvNorm>(in, out, kSmall, kStride, in));
    const std::int64_t inner = std::max(kMultiple, (out / kQuarter + kMultiple / 2) / kMultiple * kMultiple);
    if (squeeze) se_ = first->add("se", std::make_shared<FastSqueeze>(out, inner));
    second_ = proj->add("1", std::make_shared<FastOneBlock>(out, out, FastBranches{}));
  }

  at::Tensor forward(const at::Tensor& x) {
    at::Tensor out = large_->forward(x) + small_->forward(x);
    if (se_) out = se_->forward(out);
    return second_->forward(activation_ ? at::gelu(out) : out);
  }

 private:
  bool activation_;
  std::shared_ptr<FastConvNorm> large_, small_;
  std::shared_ptr<FastSqueeze> se_;
  std::shared_ptr<FastOneBlock> second_;
};

/// A learned factor `gamma` [C, 1, 1] per channel of a map.
class FastScale : public torch::nn::Module {
 public:
  FastScale(std::int64_t width, double start) : gamma_(register_parameter("gamma", at::full({width, 1, 1}, start))) {}
  at::Tensor forward(const at::Tensor& x) { return x * gamma_; }

 private:
  at::Tensor gamma_;
};

/// An MLP on each position, after a depth-wise 7x7 convolution.
class FastMlp : public torch::nn::Module {
 public:
  FastMlp(std::int64_t width, std::int64_t hidden)
      : conv_(register_module("conv", std::make_shared<FastConvNorm>(width, width, 7, 1, width))),
        fc1_(register_module("fc1", torch::nn::Conv2d(torch::nn::Conv2dOptions(width, hidden, 1)))),
        fc2_(register_module("fc2", torch::nn::Conv2d(torch::nn::Conv2dOptions(hidden, width, 1)))) {
    constexpr double kDeviation = 0.02;
    for (const torch::nn::Conv2d& map : {fc1_, fc2_}) {
      torch::nn::init::normal_(map->weight, 0.0, kDeviation);
      torch::nn::init::zeros_(map->bias);
    }
  }
  at::Tensor forward(const at::Tensor& x) { return fc2_(at::gelu(fc1_(conv_->forward(x)))); }

 private:
  std::shared_ptr<FastConvNorm> conv_;
  torch::nn::Conv2d fc1_, fc2_;
};

/// A block that mixes positions, by convolutions (RepMixer: x + gamma * (mixer(x) - norm(x))) or by attention, and then has an MLP.
class FastBlock : public torch::nn::Module {
 public:
  FastBlock(const FastVitSettings& s, std::int64_t width, bool attention) : heads_(attention ? width / kFastHead : 0) {
    const auto scale = [&](NamedParts& of, const char* name) { return of.add(name, std::make_shared<FastScale>(width, s.layer_scale_init)); };
    const auto scale_here = [&](const char* name) { return register_module(name, std::make_shared<FastScale>(width, s.layer_scale_init)); };
    if (attention) {
      if (s.norm == "layer") layer_norm_ = register_module("norm", std::make_shared<LayerNorm>(width, kNormEps));
      else batch_norm_ = register_module("norm", torch::nn::BatchNorm2d(width));
    }
    const auto mixer = register_module("token_mixer", std::make_shared<NamedParts>());
    if (attention) {
      qkv_ = mixer->add("qkv", torch::nn::Linear(torch::nn::LinearOptions(width, 3 * width).bias(false)));
      proj_ = mixer->add("proj", torch::nn::Linear(width, width));
      scale_1_ = scale_here("layer_scale_1");
    } else {
      constexpr std::int64_t kKernel = 3;
      same_ = mixer->add("norm", std::make_shared<FastOneBlock>(width, width, FastBranches{.kernel = kKernel, .depthwise = true, .convolution = false, .scale = false, .activation = false}));
      mixed_ = mixer->add("mixer", std::make_shared<FastOneBlock>(width, width, FastBranches{.kernel = kKernel, .depthwise = true, .activation = false}));
      scale_1_ = scale(*mixer, "layer_scale");
    }
    mlp_ = register_module("mlp", std::make_shared<FastMlp>(width, static_cast<std::int64_t>(static_cast<double>(width) * s.mlp_ratio)));
    scale_2_ = scale_here(attention ? "layer_scale_2" : "layer_scale");
  }

  /// map [B, C, H, W]. The factors [B, 2] multiply the updates of attention and MLP (stochastic depth); if undefined, they are 1.
  at::Tensor forward(const at::Tensor& map, const at::Tensor& factors) {
    const auto scaled = [&](const at::Tensor& update, std::int64_t column) {
      return factors.defined() ? update * factors.select(1, column).view({-1, 1, 1, 1}) : update;
    };
    const at::Tensor x = heads_ > 0 ? map + scaled(scale_1_->forward(attended(map)), 0)
                                    : map + scale_1_->forward(mixed_->forward(map) - same_->forward(map));
    return x + scaled(scale_2_->forward(mlp_->forward(x)), 1);
  }

 private:
  at::Tensor attended(const at::Tensor& map) {
    const at::Tensor normed = layer_norm_ ? layer_norm_->forward_map(map) : batch_norm(batch_norm_, map);
    const std::vector<at::Tensor> qkv = linear(qkv_, normed.flatten(2).transpose(1, 2)).chunk(3, -1);
    return linear(proj_, attend(qkv[0], qkv[1], qkv[2], heads_)).transpose(1, 2).unflatten(2, {map.size(2), map.size(3)});
  }

  std::int64_t heads_;  // 0: no attention
  std::shared_ptr<LayerNorm> layer_norm_;
  torch::nn::BatchNorm2d batch_norm_{nullptr};
  torch::nn::Linear qkv_{nullptr}, proj_{nullptr};
  std::shared_ptr<FastOneBlock> same_, mixed_;
  std::shared_ptr<FastMlp> mlp_;
  std::shared_ptr<FastScale> scale_1_, scale_2_;
};

/// FastViT (Vasu et al. 2023), the image encoder of MobileCLIP's S0 to S4 and of MobileCLIP 2, with its branches as in training. The tokens
/// are the positions of the last map in row-major order. Parameters and buffers have timm's names (stem.0.conv_kxk.0.conv,
/// stages.0.blocks.0.token_mixer, final_conv). Use it with the read-out `gap`. Images may have any size of at least one position.
class FastVit : public Encoder {
 public:
  explicit FastVit(const FastVitSettings& s) : settings_(s) {
    constexpr std::int64_t kKernel = 3, kStride = 2;
    const auto stem = register_module("stem", std::make_shared<NamedParts>());
    const auto add = [&](const char* name, std::int64_t in, const FastBranches& branches) {
      stem_.push_back(stem->add(name, std::make_shared<FastOneBlock>(in, s.widths[0], branches)));
    };
    add("0", 3, {.kernel = kKernel, .stride = kStride, .scale = s.stem_scale});
    add("1", s.widths[0], {.kernel = kKernel, .stride = kStride, .depthwise = true, .scale = s.stem_scale});
    add("2", s.widths[0], {.scale = s.stem_scale});
    const auto stages = register_module("stages", std::make_shared<NamedParts>());
    for (std::size_t i = 0; i < s.layers.size(); ++i) {
      Stage& stage = stages_.emplace_back();
      const auto names = stages->add(std::to_string(i), std::make_shared<NamedParts>());
      const auto left = static_cast<std::int64_t>(s.layers.size() - i);  // stages from this one on
      const bool attention = left <= s.attention_stages;
      constexpr std::int64_t kPositions = 7;
      if (i > 0)
        stage.downsample = names->add("downsample", std::make_shared<FastDownsample>(s.widths[i - 1], s.widths[i], left <= s.squeezed_stages,
                                                                                     s.downsample_activation));
      if (attention)
        stage.positions = names->add("pos_emb", std::make_shared<NamedParts>())
                              ->add("pos_enc", torch::nn::Conv2d(torch::nn::Conv2dOptions(s.widths[i], s.widths[i], kPositions)
                                                                     .padding(kPositions / 2)
                                                                     .groups(s.widths[i])));
      const auto blocks = names->add("blocks", std::make_shared<NamedParts>());
      for (std::int64_t block = 0; block < s.layers[i]; ++block)
        stage.blocks.push_back(blocks->add(std::to_string(block), std::make_shared<FastBlock>(s, s.widths[i], attention)));
      blocks_ += s.layers[i];
    }
    final_conv_ = register_module("final_conv", std::make_shared<FastOneBlock>(s.widths.back(), width(),
                                                                             FastBranches{.kernel = kKernel, .depthwise = true, .squeeze = true}));
  }

  Encoded encode(const TowerInput& input) override {
    const at::Tensor& image = input.pixels;
    TORCH_CHECK(image.defined() && image.dim() == 4 && image.size(1) == 3 && image.size(2) >= stride() && image.size(3) >= stride(),
                "fastvit: takes images [B, 3, H, W] of at least ", stride(), " pixels a side");
    at::Tensor draws;  // [B, 2 blocks]
    if (settings_.drop_path > 0 && is_training()) draws = row_uniform(image.size(0), 2 * blocks_, image.device());
    at::Tensor x = image;
    for (const auto& part : stem_) x = part->forward(x);
    std::int64_t number = 0;
    for (Stage& stage : stages_) {
      if (stage.downsample) x = stage.downsample->forward(x);
      if (stage.positions) x = stage.positions(x) + x;
      for (const auto& block : stage.blocks) {
        at::Tensor factors;
        if (draws.defined()) {
          const double rate = settings_.drop_path * static_cast<double>(number) / static_cast<double>(std::max<std::int64_t>(1, blocks_ - 1));
          factors = draws.narrow(1, 2 * number, 2).ge(rate) / (1 - rate);
        }
        x = block->forward(x, factors);
        ++number;
      }
    }
    x = final_conv_->forward(x);
    Encoded out;
    out.grid = {x.size(2), x.size(3)};
    out.tokens = x.flatten(2).transpose(1, 2);
    return out;
  }

  std::int64_t width() const override { return 2 * settings_.widths.back(); }
  config::Size grid() const override {
    return {(settings_.image_size.height + stride() - 1) / stride(), (settings_.image_size.width + stride() - 1) / stride()};
  }
  bool draws_when_frozen() const override { return settings_.drop_path > 0; }
  /// For layer decay, each stage counts as a block.
  std::int64_t depth() const override { return std::ssize(settings_.layers) + 1; }
  std::int64_t depth_of(const std::string& parameter) const override {
    constexpr std::string_view kStages = "stages.";
    if (parameter.starts_with(kStages)) return parameter[kStages.size()] - '0' + 1;
    return parameter.starts_with("stem.") ? 0 : depth();
  }

 private:
  struct Stage {
    std::shared_ptr<FastDownsample> downsample;  // null in the first stage
    torch::nn::Conv2d positions{nullptr};
    std::vector<std::shared_ptr<FastBlock>> blocks;
  };

  std::int64_t stride() const { return std::int64_t{4} << (settings_.layers.size() - 1); }

  FastVitSettings settings_;
  std::int64_t blocks_ = 0;
  std::vector<std::shared_ptr<FastOneBlock>> stem_;
  std::vector<Stage> stages_;
  std::shared_ptr<FastOneBlock> final_conv_;
};

}  // namespace

void add_fastvit(EncoderRegistry& list) {
  add_encoder<FastVit, FastVitSettings>(list, "fastvit", "FastViT as in timm (MobileCLIP S0 to S4); read-out gap");
}

}  // namespace tessera
