#include <algorithm>
#include <numeric>

#include <ATen/ATen.h>
#include <torch/nn/modules/container/modulelist.h>

#include "src/models/fc_mlp.h"
#include "src/models/groupvit.h"
#include "src/models/position_embedding.h"
#include "src/models/self_attention.h"

namespace tessera {
namespace {

constexpr std::string_view kStagePrefix = "layers.", kBlockPrefix = "blocks.";

/// Self-attention under timm's names, `qkv` and `proj`.
class QkvAttention : public torch::nn::Module {
 public:
  QkvAttention(std::int64_t width, std::int64_t heads)
      : heads_(heads),
        qkv_(register_module("qkv", normal_linear(width, 3 * width))),
        proj_(register_module("proj", normal_linear(width, width))) {}
  at::Tensor forward(const at::Tensor& x) {
    return proj_(self_attention(qkv_(x), heads_, {}));
  }

 private:
  std::int64_t heads_;
  torch::nn::Linear qkv_, proj_;
};

/// A pre-norm block under timm's names.
class GroupVitBlock : public torch::nn::Module {
 public:
  GroupVitBlock(std::int64_t width, std::int64_t heads, std::int64_t hidden)
      : norm1_(register_module("norm1", std::make_shared<LayerNorm>(width, kNormEps))),
        attn_(register_module("attn", std::make_shared<QkvAttention>(width, heads))),
        norm2_(register_module("norm2", std::make_shared<LayerNorm>(width, kNormEps))),
        mlp_(register_module("mlp", std::make_shared<FcMlp>(width, hidden, width))) {}
  at::Tensor forward(const at::Tensor& input) {
    const at::Tensor x = input + attn_->forward(norm1_->forward(input));
    return x + mlp_->forward(norm2_->forward(x));
  }

 private:
  std::shared_ptr<LayerNorm> norm1_;
  std::shared_ptr<QkvAttention> attn_;
  std::shared_ptr<LayerNorm> norm2_;
  std::shared_ptr<FcMlp> mlp_;
};

/// Turns the previous stage's group tokens into as many tokens as this stage has group tokens. Consists of a LayerNorm (named `0`) and an
/// MLP across the group tokens (named `1`).
class GroupProjector : public torch::nn::Module {
 public:
  GroupProjector(std::int64_t width, std::int64_t from, std::int64_t to)
      : norm_(register_module("0", std::make_shared<LayerNorm>(width, kNormEps))),
        mlp_(register_module("1", std::make_shared<FcMlp>(from, width / 2, to))) {}
  at::Tensor forward(const at::Tensor& groups) { return mlp_->forward_groups(norm_->forward(groups)); }

 private:
  std::shared_ptr<LayerNorm> norm_;
  std::shared_ptr<FcMlp> mlp_;
};

std::int64_t sum_of(const std::vector<std::int64_t>& numbers, std::int64_t count) {
  return std::accumulate(numbers.begin(), numbers.begin() + count, std::int64_t{0});
}

}  // namespace

class GroupVitStage : public torch::nn::Module {
 public:
  GroupVitStage(const GroupVitSettings& s, std::size_t index) : groups_(s.num_group_tokens[index]) {
    if (groups_ > 0) {
      // After the first stage, group tokens start at zero, because they are added to the previous stage's group tokens
      // (as in the authors' code).
      const double deviation = index == 0 ? 0.02 : 0.0;
      group_token_ = register_parameter("group_token", deviation * at::randn({1, groups_, s.width}));
    }
    register_module("blocks", blocks_);
    const auto hidden = static_cast<std::int64_t>(static_cast<double>(s.width) * s.mlp_ratio);
    for (std::int64_t i = 0; i < s.depths[index]; ++i)
      blocks_->push_back(std::make_shared<GroupVitBlock>(s.width, s.heads[index], hidden));
    if (groups_ == 0) return;
    if (index > 0)
      projector_ = register_module("group_projector",
                                   std::make_shared<GroupProjector>(s.width, s.num_group_tokens[index - 1], groups_));
    grouping_ = make_grouping_block(
        {.variant = "groupvit", .gumbel_tau = s.gumbel_tau, .assign_eps = s.assign_eps},
        {.width = s.width, .groups = groups_, .output_groups = s.num_output_groups[index], .heads = s.heads[index]});
    register_module("downsample", grouping_);
  }

  bool groups() const { return grouping_ != nullptr; }
  const GroupingBlock& grouping() const { return *grouping_; }

  /// Appends this stage's group tokens to x [B, N, width] and runs the blocks. `before` is the previous stage's final
  /// group tokens, or undefined.
  at::Tensor forward(at::Tensor x, const at::Tensor& before) {
    if (groups_ > 0) {
      at::Tensor groups = group_token_.expand({x.size(0), -1, -1});
      if (projector_) groups = groups + projector_->forward(before);
      x = at::cat({x, groups}, 1);
    }
    for (const auto& block : *blocks_) x = static_cast<GroupVitBlock&>(*block).forward(x);
    return x;
  }
  Grouped downsample(const at::Tensor& tokens, const at::Tensor& groups, const at::Tensor& noise) {
    return grouping_->forward(tokens, groups, {}, noise);
  }

 private:
  std::int64_t groups_;
  at::Tensor group_token_;
  torch::nn::ModuleList blocks_;
  std::shared_ptr<GroupProjector> projector_;
  std::shared_ptr<GroupingBlock> grouping_;  // null in the last stage
};

std::optional<config::Problem> validate(const GroupVitSettings& s) {
  const std::size_t stages = s.depths.size();
  if (stages < 2) return config::Problem{"depths", "needs at least two stages"};
  if (s.heads.size() != stages)
    return config::Problem{"heads", concat("has ", s.heads.size(), " numbers, but depths has ", stages, " stages")};
  if (s.num_group_tokens.size() != stages)
    return config::Problem{"num_group_tokens",
                           concat("has ", s.num_group_tokens.size(), " numbers, but depths has ", stages, " stages")};
  if (s.num_output_groups.size() + 1 != stages)
    return config::Problem{"num_output_groups", concat("has ", s.num_output_groups.size(), " numbers, but there are ",
                                                       stages - 1, " stages before the last")};
  for (std::size_t i = 0; i < stages; ++i) {
    if (s.width % s.heads[i] != 0)
      return config::Problem{"heads", concat(s.heads[i], " does not divide width ", s.width)};
    if ((s.num_group_tokens[i] == 0) != (i + 1 == stages))
      return config::Problem{"num_group_tokens", "must be at least 1 in each stage except the last, and 0 in the last"};
  }
  if (s.image_size.height < s.patch_size || s.image_size.height % s.patch_size != 0 ||
      s.image_size.width < s.patch_size || s.image_size.width % s.patch_size != 0)
    return config::Problem{"image_size", concat(s.image_size.height, " x ", s.image_size.width,
                                                " is not a multiple of patch_size ", s.patch_size)};
  if (static_cast<double>(s.width) * s.mlp_ratio < 1)
    return config::Problem{"mlp_ratio", concat("int(width * mlp_ratio) must be at least 1, but width is ", s.width)};
  return std::nullopt;
}

GroupVit::GroupVit(const GroupVitSettings& settings) : settings_(settings) {
  const auto patch_embed = register_module("patch_embed", std::make_shared<torch::nn::Module>());
  patch_proj_ = patch_embed->register_module(
      "proj",
      torch::nn::Conv2d(torch::nn::Conv2dOptions(3, settings.width, settings.patch_size).stride(settings.patch_size)));
  patch_norm_ = patch_embed->register_module("norm", std::make_shared<LayerNorm>(settings.width, kNormEps));
  pos_embed_ = register_parameter("pos_embed", 0.02 * at::randn({1, grid().height * grid().width, settings.width}));
  const auto stages = register_module("layers", torch::nn::ModuleList());
  for (std::size_t i = 0; i < settings.depths.size(); ++i) {
    stages_.push_back(std::make_shared<GroupVitStage>(settings, i));
    stages->push_back(stages_.back());
  }
  norm_ = register_module("norm", std::make_shared<LayerNorm>(settings.width, kNormEps));
}

config::Size GroupVit::grid() const {
  return {settings_.image_size.height / settings_.patch_size, settings_.image_size.width / settings_.patch_size};
}

at::Tensor GroupVit::embed_patches(const at::Tensor& pixels, config::Size grid) {
  const at::Tensor patches = patch_norm_->forward(patch_proj_(pixels).flatten(2).mT());  // [B, N, width]
  return patches + resample_position_grid(pos_embed_, grid, this->grid());
}

GroupVit::Stages GroupVit::group(const at::Tensor& pixels, const std::vector<at::Tensor>& noise) {
  const std::int64_t patch = settings_.patch_size;
  TORCH_CHECK(pixels.defined() && pixels.dim() == 4 && pixels.size(1) == 3 && pixels.size(2) >= patch &&
                  pixels.size(3) >= patch && pixels.size(2) % patch == 0 && pixels.size(3) % patch == 0,
              "groupvit: images must be [B, 3, H, W] with H and W multiples of ", patch, ", got ",
              pixels.defined() ? concat(pixels.sizes()) : std::string("none"));
  Stages out;
  out.grid = {pixels.size(2) / patch, pixels.size(3) / patch};
  at::Tensor x = embed_patches(pixels, out.grid), groups;
  for (const auto& stage : stages_) {
    const std::int64_t tokens = x.size(1);
    x = stage->forward(x, groups);
    if (!stage->groups()) break;
    groups = x.slice(1, tokens);
    x = x.slice(1, 0, tokens);
    const std::size_t index = out.grouped.size();
    out.grouped.push_back(
        stage->downsample(x, groups, noise.empty() ? stage->grouping().draw_noise(x) : noise.at(index)));
    x = out.grouped.back().groups;
  }
  out.groups = norm_->forward(x);
  return out;
}

Encoded GroupVit::encode(const TowerInput& input) {
  const Stages stages = group(input.pixels);
  Encoded out;
  out.tokens = stages.groups;
  out.grid = stages.grid;
  for (const Grouped& grouped : stages.grouped)
    out.attention = out.attention.defined() ? at::matmul(grouped.soft_assignment, out.attention)  // [B, K, N]
                                            : grouped.soft_assignment;
  return out;
}

std::int64_t GroupVit::depth() const {
  return sum_of(settings_.depths, std::ssize(settings_.depths)) + 1;
}

std::int64_t GroupVit::depth_of(const std::string& parameter) const {
  if (parameter.starts_with("norm.")) return depth();
  if (!parameter.starts_with(kStagePrefix)) return 0;
  std::size_t digits = 0;
  const std::string rest = parameter.substr(kStagePrefix.size());  // "1.blocks.2.norm1.weight"
  const std::int64_t stage = std::stoll(rest, &digits), before = sum_of(settings_.depths, stage);
  const std::string part = rest.substr(digits + 1);
  if (part.starts_with(kBlockPrefix)) return before + std::stoll(part.substr(kBlockPrefix.size())) + 1;
  return part.starts_with("downsample.") ? sum_of(settings_.depths, stage + 1) : before;
}

at::Tensor GroupVit::adapt_weight(const std::string& name, const at::Tensor& stored) const {
  if (name != "pos_embed" || stored.dim() != 3 || stored.size(0) != 1 || stored.size(2) != settings_.width)
    return stored;
  const config::Size there = square_grid(stored.size(1));
  if (stored.size(1) == pos_embed_.size(1) || there.height == 0) return stored;
  return resample_position_grid(stored, grid(), there);
}

}  // namespace tessera
