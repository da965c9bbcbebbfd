#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/nn/modules/conv.h>

#include "src/models/grouping_block.h"
#include "src/models/layers.h"
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
  v("image_size", s.image_size, "pixels, a multiple of patch_size: one side for a square, or [height, width]");
  v("patch_size", s.patch_size, "side of a patch in pixels", config::at_least(1));
  v("width", s.width, "width of patches and groups", config::at_least(2));
  v("depths", s.depths, "number of blocks in each stage", config::in_range(0, config::kMostCount));
  v("heads", s.heads, "attention heads of each stage; divide width", config::at_least(1));
  v("num_group_tokens", s.num_group_tokens, "number of learned group tokens in each stage; 0 in the last one",
    config::at_least(0));
  v("num_output_groups", s.num_output_groups, "number of groups that each stage except the last passes to the next",
    config::at_least(1));
  v("mlp_ratio", s.mlp_ratio, "hidden width of a block's MLP = int(width * mlp_ratio)", config::above(0));
  v("assign_eps", s.assign_eps, "added to the sum that a group's weights are divided by", config::at_least(0));
  v("gumbel_tau", s.gumbel_tau, "temperature that divides scores and Gumbel noise in training; not used without noise", config::above(0));
}

std::optional<config::Problem> validate(const GroupVitSettings& settings);

class GroupVitStage;

/// `groupvit`: GroupViT's image encoder (Xu et al. 2022). Each stage except the last appends group tokens to its input (patches or groups)
/// and ends in a grouping block. The groups from that block are the next stage's input. The encoder's tokens are the last stage's groups
/// [B, K, width]. `attention` tells how much of each patch belongs to each of these groups: it is the product of all stages' soft
/// assignments and sums to 1 over the groups. Parameters have the names of the authors' checkpoint. For images of a size other than the
/// configured size, the position embeddings are resampled (bicubic).
class GroupVit : public Encoder {
 public:
  /// The groups after the last norm, and the output of each grouping block.
  struct Stages {
    at::Tensor groups;             // [B, K, width]
    std::vector<Grouped> grouped;  // one for each grouping block
    config::Size grid;             // the grid of the patches
  };

  explicit GroupVit(const GroupVitSettings& settings);
  Encoded encode(const TowerInput& input) override;
  std::int64_t width() const override { return settings_.width; }
  /// The grid of the patches.
  config::Size grid() const override;
  std::int64_t depth() const override;
  std::int64_t depth_of(const std::string& parameter) const override;
  at::Tensor adapt_weight(const std::string& name, const at::Tensor& stored) const override;

  /// Maps normalized pixels [B, 3, H, W] to groups. `noise` holds [B, K, N] for each grouping block, as GroupingBlock::forward takes it; if
  /// it is empty, each block that is being trained draws its own noise.
  Stages group(const at::Tensor& pixels, const std::vector<at::Tensor>& noise = {});

 private:
  at::Tensor embed_patches(const at::Tensor& pixels, config::Size grid);

  GroupVitSettings settings_;
  torch::nn::Conv2d patch_proj_{nullptr};
  std::shared_ptr<LayerNorm> patch_norm_, norm_;
  at::Tensor pos_embed_;
  std::vector<std::shared_ptr<GroupVitStage>> stages_;
};

}  // namespace tessera
