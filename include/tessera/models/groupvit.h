#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/nn/modules/conv.h>

#include <tessera/models/grouping_block.h>
#include <tessera/models/layers.h>
#include <tessera/models/tower.h>

namespace tessera {

struct GroupVitSettings {
  config::Size image_size = 224;
  std::int64_t patch_size = 16;
  std::int64_t width = 384;
  std::vector<std::int64_t> depths = {6, 3, 3};
  std::vector<std::int64_t> heads = {6, 6, 6};
  std::vector<std::int64_t> num_group_tokens = {64, 8, 0};
  std::vector<std::int64_t> num_output_groups = {64, 8};
  double mlp_ratio = 4.0;
  double assign_eps = 1.0;
  double gumbel_tau = 1.0;
};

template <class Visitor>
void fields(Visitor& v, GroupVitSettings& s) {
  v("image_size", s.image_size, "pixels, a multiple of patch_size: the side of a square, or [height, width]");
  v("patch_size", s.patch_size, "pixels, side of a patch", config::at_least(1));
  v("width", s.width, "of patches and groups", config::at_least(2));
  v("depths", s.depths, "blocks of each stage", config::at_least(0));
  v("heads", s.heads, "attention heads of each stage; divide width", config::at_least(1));
  v("num_group_tokens", s.num_group_tokens, "group tokens that each stage learns; 0 in the last one",
    config::at_least(0));
  v("num_output_groups", s.num_output_groups, "groups that each stage but the last gives to the next one",
    config::at_least(1));
  v("mlp_ratio", s.mlp_ratio, "hidden width of a block's MLP = int(width * mlp_ratio)", config::above(0));
  v("assign_eps", s.assign_eps, "as in the grouping block", config::at_least(0));
  v("gumbel_tau", s.gumbel_tau, "as in the grouping block", config::above(0));
}

std::optional<config::Problem> validate(const GroupVitSettings& settings);

class GroupVitStage;

/// `groupvit`: GroupViT's image encoder (Xu et al. 2022). Each stage but the last appends group tokens to what it gets,
/// patches or groups, and ends in a grouping block, whose groups are what the next stage gets. Its tokens are the last
/// stage's groups [B, K, width]; `attention` is the share of each patch in each of them, the product of all stages'
/// soft assignments; over the groups it sums to 1. Parameters have the names of the authors' checkpoint. Pictures of
/// another size resample the position embeddings (bicubic).
class GroupVit : public Encoder {
 public:
  /// The groups behind the last norm, and what each grouping block gave.
  struct Stages {
    at::Tensor groups;             // [B, K, width]
    std::vector<Grouped> grouped;  // of each block
    config::Size grid;             // of the patches
  };

  explicit GroupVit(const GroupVitSettings& settings);
  Encoded encode(const TowerInput& input) override;
  std::int64_t width() const override { return settings_.width; }
  /// Of the patches.
  config::Size grid() const override;
  std::int64_t depth() const override;
  std::int64_t depth_of(const std::string& parameter) const override;
  at::Tensor adapt_weight(const std::string& name, const at::Tensor& stored) const override;

  /// Normalized pixels [B, 3, H, W] to groups. noise [B, K, N] of each grouping block, as GroupingBlock::forward takes
  /// it; none given: each block draws its own, where it is trained.
  Stages group(const at::Tensor& pixels, const std::vector<at::Tensor>& noise = {});

 private:
  at::Tensor embed_patches(const at::Tensor& pixels, config::Size grid);

  GroupVitSettings settings_;
  std::shared_ptr<torch::nn::Module> patch_embed_;
  torch::nn::Conv2d patch_proj_{nullptr};
  std::shared_ptr<LayerNorm> patch_norm_, norm_;
  at::Tensor pos_embed_;
  std::vector<std::shared_ptr<GroupVitStage>> stages_;
};

}  // namespace tessera
