#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>

#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "src/models/conv_stem.h"
#include "src/models/leff.h"
#include "src/models/region_tokens.h"
#include "src/models/rotary.h"
#include "src/models/transformer.h"
#include <tessera/models/tower.h>

namespace tessera {

/// Settings of region features, which pass through the blocks from `first_block` on.
struct VitRegionSettings : RegionSettings {
  std::int64_t first_block = 9;
};

template <class Visitor>
void fields(Visitor& v, VitRegionSettings& s) {
  fields(v, static_cast<RegionSettings&>(s));
  v("first_block", s.first_block, "the first block that regions go through, from 0", config::at_least(0));
}

struct VitSettings : TransformerSettings {
  config::Size image_size = 224;
  config::Size patch_size = 16;
  bool partial_patches = false;
  std::string stem = "patch";
  std::array<std::int64_t, 2> stem_widths = {160, 320};
  bool class_token = true;
  std::int64_t registers = 0;
  bool patch_bias = false;
  bool pre_norm = true;
  std::string position_embedding = "learned";
  std::string prefix_positions = "class_token";
  std::string position_resampling = "antialiased";
  std::optional<RotarySettings> rotary;
  double patch_dropout = 0.0;
  bool mask_token = false;
  std::optional<LeffSettings> leff;
  std::optional<VitRegionSettings> regions;
};

template <class Visitor>
void fields(Visitor& v, VitSettings& s) {
  v("image_size", s.image_size, "pixels: one side for a square, or [height, width]");
  v("patch_size", s.patch_size, "size of a patch in pixels; divides image_size");
  v("partial_patches", s.partial_patches,
    "drop pixels at the right and lower edges that fill no patch (SigLIP of 384 pixels in patches of 14); false: an error");
  fields(v, static_cast<TransformerSettings&>(s));
  v("stem", s.stem,
    "patch: one convolution of patch_size; mobileclip: three convolutions with batch norms (MobileCLIP-B; patch_size 16); vitamin: two "
    "stages of inverted bottlenecks (ViTamin; patch_size 16)",
    config::one_of({"patch", "mobileclip", "vitamin"}));
  v("stem_widths", s.stem_widths, "vitamin: channels of its two stages; the first number also applies before the first stage",
    config::at_least(1));
  v("class_token", s.class_token, "a learned token before the patches (SPARC: false)");
  v("registers", s.registers, "number of learned tokens after the class token that no read-out sees (Darcet et al. 2024)",
    config::at_least(0));
  v("patch_bias", s.patch_bias, "whether the patch convolution has a bias");
  v("pre_norm", s.pre_norm, "LayerNorm before the blocks, OpenCLIP's ln_pre (SPARC: false)");
  v("position_embedding", s.position_embedding,
    "learned, or none: attention then sees an unordered set of patches",
    config::one_of({"learned", "none"}));
  v("prefix_positions", s.prefix_positions,
    "which tokens before the patches have a learned position: none, class_token, or all (class token and registers)",
    config::one_of({"none", "class_token", "all"}));
  v("position_resampling", s.position_resampling,
    "how learned positions are resized to another grid: antialiased bicubic (OpenCLIP, timm), plain bicubic "
    "(transformers' DINOv2 without registers), or antialiased bilinear (SigLIP 2's NaFlex)",
    config::one_of({"antialiased", "bicubic", "bilinear"}));
  v("rotary", s.rotary, "2-D rotary positions in every block: {base: 100, coordinates: centered}; null: none");
  v("patch_dropout", s.patch_dropout,
    "share of an image's patches that are dropped in training, drawn again in each step (FLIP, Li et al. 2023)",
    config::in_half_open(0, 1));
  v("mask_token", s.mask_token,
    "a learned token that replaces patches hidden by the objective (masked_prediction; iBOT, Zhou et al. 2022)");
  v("leff", s.leff,
    "a 3x3 convolution over the patches in the MLP of the first blocks (LeFF): {layers: 9}; null: none");
  v("regions", s.regions, "region features as an image view: {width: 2052, first_block: 9}; null: none");
}

std::optional<config::Problem> validate(const VitSettings& settings);

/// Whether the configured images have partial patches at their edges, because patch_size does not divide image_size. Other libraries allow
/// this.
bool has_partial_patches(const VitSettings& settings);

/// Vision transformer (Dosovitskiy et al. 2021) in CLIP's form: patches by a convolution without bias, learned positions, pre-norm blocks.
/// Parameters have OpenCLIP's names (conv1, class_embedding, positional_embedding, ln_pre, transformer, ln_post). Images may have another
/// size than the configured one if patch_size divides it; the position embedding is then resampled to their grid. Images of varying shapes
/// are passed as patches (TowerInput::patches): conv1 is then a linear map of the patches, each image has the positions of its grid, and
/// the blocks see only real patches (NaViT, Dehghani et al. 2023; NaFlex of SigLIP 2, Tschannen et al. 2025). So each image gets the same
/// encoding as if its pixels were passed alone. Region features add the parameters `roi_proj` and `roi_class_embedding`; LeFF adds
/// `mlp.dwconv` in the blocks.
class Vit : public Encoder {
 public:
  explicit Vit(const VitSettings& settings);
  Encoded encode(const TowerInput& input) override;
  /// If the setting final_norm is `tokens` or `pooled`, applies the final norm to `other_tokens`. They are then normalized like the class
  /// token, which passes through this norm before the projection.
  Encoded encode_with(LastBlock kind, const TowerInput& input) override;
  at::Tensor final_norm(const at::Tensor& pooled) override;
  std::int64_t width() const override { return settings_.width; }
  bool has_class_token() const override { return settings_.class_token; }
  bool norms_pooled() const override { return settings_.final_norm == "pooled"; }
  config::Size grid() const override;
  config::Size maskable_grid(const at::Tensor& pixels) const override;
  config::Size patch_of_sequences() const override;
  void set_residual_type(at::ScalarType type) override { residual_type_ = type; }
  bool draws_when_frozen() const override { return settings_.patch_dropout > 0 || settings_.drop_path > 0; }
  std::int64_t region_width() const override { return settings_.regions ? settings_.regions->width : 0; }
  std::int64_t depth() const override { return settings_.layers + 1; }
  std::int64_t depth_of(const std::string& parameter) const override;
  at::Tensor adapt_weight(const std::string& name, const at::Tensor& stored) const override;

 private:
  /// Images in the form that the first block takes: [B, N, w], or packed [T, w] (sequence.mask.packed).
  struct Embedded {
    at::Tensor tokens;
    SequenceInfo sequence;
    config::Size grid = {0, 0};  // {0, 0} if each image has its own grid
    at::Tensor mask{};           // bool [B, P], true for real patches; undefined if all are real
  };
  at::Tensor patch_embedding(const at::Tensor& image);
  at::Tensor map_patches(const at::Tensor& patches) const;
  Embedded embed(const TowerInput& input);
  Embedded embed_patches(const TowerInput& input);
  /// Returns the positions [prefix + P, w] of all tokens for images with this grid; 0 for tokens without a position.
  at::Tensor positions_of(config::Size grid) const;
  /// Returns the rotation of all tokens for this grid; tokens before the patches are not rotated.
  Rotation rotation_with_prefix(config::Size grid, const at::Device& device) const;
  /// Returns patches [B, P, w], in which the mask token replaces each patch whose entry in hidden [B, P] is true. Returns the patches
  /// unchanged if `hidden` is undefined.
  at::Tensor with_mask_token(const at::Tensor& patches, const at::Tensor& hidden) const;
  /// These functions return the number of tokens before the patches, and how many of these tokens have a learned position.
  std::int64_t prefix() const { return (settings_.class_token ? 1 : 0) + settings_.registers; }
  std::int64_t positioned() const;
  at::Tensor with_prefix(const at::Tensor& patches) const;
  Encoded encoded(const ResidualStream& last, const Embedded& embedded);
  /// Returns the residual stream that starts with these tokens: after ln_pre, if there is one, in the stream's type.
  at::Tensor start_stream(const at::Tensor& tokens);
  Encoded encode_regions(const at::Tensor& regions, const at::Tensor& mask);
  at::Tensor drop_patches(const at::Tensor& x, Rotation& rotation) const;
  Rotation rotation(config::Size grid, const at::Tensor& x) const;

  VitSettings settings_;
  at::ScalarType residual_type_ = at::kFloat;
  torch::nn::Conv2d conv1_{nullptr};
  std::shared_ptr<PatchStem> stem_;  // used instead of conv1_; null: conv1_ is used
  at::Tensor class_embedding_;
  at::Tensor register_embedding_;
  at::Tensor mask_token_;
  at::Tensor positional_embedding_;
  std::shared_ptr<LayerNorm> ln_pre_;
  std::shared_ptr<Transformer> transformer_;
  std::shared_ptr<LayerNorm> ln_post_;
  std::unique_ptr<RegionTokens> region_tokens_;
};

}  // namespace tessera
