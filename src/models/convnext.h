#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/nn/modules/conv.h>

#include "src/models/layers.h"
#include <tessera/models/tower.h>

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

std::optional<config::Problem> validate(const ConvNextSettings& settings);

class ConvNextBlock;

/// ConvNeXt (Liu et al. 2022) and ConvNeXt V2. The tokens are the positions of the last stage's map in row-major order. Parameters have
/// timm's names (stem.0, stages.0.blocks.0.conv_dw, head.norm). It is used with the read-out `gap`. Images may have any size that the
/// strides divide.
class ConvNext : public Encoder {
 public:
  explicit ConvNext(const ConvNextSettings& settings);
  Encoded encode(const TowerInput& input) override;
  at::Tensor final_norm(const at::Tensor& pooled) override;
  bool norms_pooled() const override { return !settings_.norm_first; }
  std::int64_t width() const override { return settings_.widths[3]; }
  config::Size grid() const override;
  bool draws_when_frozen() const override { return settings_.drop_path > 0; }
  /// For layer decay, the four stages count as blocks. Their parameters have the depths 1 to 4, and later parameters have depth 5
  /// (Encoder::depth_of()).
  std::int64_t depth() const override { return 5; }
  std::int64_t depth_of(const std::string& parameter) const override;

 private:
  void make_stem();
  at::Tensor through_stem(const at::Tensor& pixels);
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

}  // namespace tessera
