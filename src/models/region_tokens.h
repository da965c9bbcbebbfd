#pragma once

#include <memory>
#include <string>

#include <torch/nn/modules/linear.h>

#include "src/models/layers.h"
#include <tessera/config/fields.h>

namespace tessera {

/// A detector's region features as a second kind of input to an image encoder (PyramidCLIP, Gao et al. 2022, 3.3).
struct RegionSettings {
  std::int64_t width = 2052;
  bool bias = false;
  bool pre_norm = true;
  std::string class_token = "learned";
};

template <class Visitor>
void fields(Visitor& v, RegionSettings& s) {
  v("width", s.width, "width of a region's features (2,048 of the detector and 4 of the box)", config::at_least(1));
  v("bias", s.bias, "whether the linear map to the encoder's width has a bias");
  v("pre_norm", s.pre_norm, "apply LayerNorm `ln_pre` to the regions and their class token; a vit then also needs its own pre_norm");
  v("class_token", s.class_token,
    "the regions' class token: learned: their own; shared: the images' (the published ViT); mean: the mean over regions (the "
    "published ResNet)",
    config::one_of({"learned", "shared", "mean"}));
}

/// Turns region features into tokens by a linear map, and puts a class token in front. There are no position embeddings. Parameters
/// `roi_proj` and `roi_class_embedding` are registered with the encoder.
class RegionTokens {
 public:
  /// The sequence that the rest of the encoder takes. The token of a region whose mask is false is 0 and receives no gradient.
  struct Sequence {
    at::Tensor tokens;  // [B, n + R, w], where n is 1 with a class token, else 0
    at::Tensor mask;    // bool [B, n + R], in which the class token counts as real; undefined if all tokens are real
  };

  /// class_token: whether to add a class token. of_images: the class token of images; must be defined if settings.class_token is
  /// `shared`, otherwise ignored.
  RegionTokens(const RegionSettings& settings, std::int64_t width, bool class_token, const at::Tensor& of_images,
               torch::nn::Module& encoder);
  /// Takes regions [B, R, F], and mask bool [B, R] or undefined. Throws c10::Error if F is not the configured width.
  Sequence forward(const at::Tensor& regions, const at::Tensor& mask, LayerNorm* ln_pre);

 private:
  at::Tensor class_tokens(const at::Tensor& tokens, const at::Tensor& mask) const;

  RegionSettings settings_;
  bool class_token_;
  torch::nn::Linear roi_proj_{nullptr};
  at::Tensor class_embedding_;
};

}  // namespace tessera
