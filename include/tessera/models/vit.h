#pragma once

#include <memory>
#include <optional>
#include <string>

#include <torch/nn/modules/conv.h>

#include <tessera/models/tower.h>
#include <tessera/models/transformer.h>

namespace tessera {

struct VitSettings : TransformerSettings {
  config::Size image_size = 224;
  config::Size patch_size = 16;
  bool class_token = true;
  bool pre_norm = true;
  std::string position_embedding = "learned";
  double patch_dropout = 0.0;
};

template <class Visitor>
void fields(Visitor& v, VitSettings& s) {
  v("image_size", s.image_size, "pixels: the side of a square, or [height, width]");
  v("patch_size", s.patch_size, "pixels of a patch; divides image_size");
  fields(v, static_cast<TransformerSettings&>(s));
  v("class_token", s.class_token, "a learned token before the patches (SPARC: false)");
  v("pre_norm", s.pre_norm, "LayerNorm before the blocks, OpenCLIP's ln_pre (SPARC: false)");
  v("position_embedding", s.position_embedding,
    "learned, or none: a patch knows only what it shows, and attention sees a set of patches",
    config::one_of({"learned", "none"}));
  v("patch_dropout", s.patch_dropout,
    "share of patches that a picture leaves out in training, drawn anew each step (FLIP, Li et al. 2023)",
    config::in_half_open(0, 1));
}

std::optional<config::Problem> validate(const VitSettings& settings);

/// Vision transformer (Dosovitskiy et al. 2021) in CLIP's form: patches by a convolution without bias, learned
/// positions, pre-norm blocks. Parameters carry OpenCLIP's names (conv1, class_embedding, positional_embedding, ln_pre,
/// transformer, ln_post).
class Vit : public Encoder {
 public:
  explicit Vit(const VitSettings& settings);
  Encoded encode(const at::Tensor& image, const at::Tensor& mask) override;
  at::Tensor final_norm(const at::Tensor& pooled) override;
  std::int64_t width() const override { return settings_.width; }
  bool has_class_token() const override { return settings_.class_token; }
  config::Size grid() const override;
  at::Tensor adapt_weight(const std::string& name, const at::Tensor& stored) const override;

 private:
  at::Tensor drop_patches(const at::Tensor& x) const;

  VitSettings settings_;
  torch::nn::Conv2d conv1_{nullptr};
  at::Tensor class_embedding_;
  at::Tensor positional_embedding_;
  std::shared_ptr<LayerNorm> ln_pre_;
  std::shared_ptr<Transformer> transformer_;
  std::shared_ptr<LayerNorm> ln_post_;
};

}  // namespace tessera
