#include <cmath>
#include <limits>

#include <ATen/ATen.h>

#include "src/models/attention.h"
#include "src/models/fc_mlp.h"
#include "src/models/grouping_block.h"
#include "src/models/layers.h"
#include "src/models/per_sample_rng.h"

namespace tessera {
namespace {


/// The maps `q_proj`, `k_proj`, `v_proj` and `proj`. Their initial weights are small, so that the initial scores are
/// small and similar for all groups. Training then decides which tokens a group gets; large initial scores would decide
/// this by chance.
class SeparateProjections : public torch::nn::Module {
 public:
  SeparateProjections(std::int64_t width, double value_deviation)
      : q_proj_(register_module("q_proj", normal_linear(width, width))),
        k_proj_(register_module("k_proj", normal_linear(width, width))),
        v_proj_(register_module("v_proj", normal_linear(width, width, value_deviation))),
        proj_(register_module("proj", normal_linear(width, width, value_deviation))) {}

 protected:
  torch::nn::Linear q_proj_, k_proj_, v_proj_, proj_;
};

class GroupsAttend : public SeparateProjections {
 public:
  GroupsAttend(std::int64_t width, std::int64_t heads)
      : SeparateProjections(width, kGroupVitDeviation), heads_(heads) {}
  at::Tensor forward(const at::Tensor& groups, const at::Tensor& tokens, const at::Tensor& mask) {
    return proj_(
        attend(q_proj_(groups), k_proj_(tokens), v_proj_(tokens), heads_, attention_mask(mask, tokens.size(1))));
  }

 private:
  std::int64_t heads_;
};

/// Computes eq. 1-4 of the text group transformer. In GroupViT's code this module is called `assign`.
class AssignAttention : public SeparateProjections {
 public:
  AssignAttention(const GroupingSettings& settings, double assign_eps, std::int64_t width, double value_deviation)
      : SeparateProjections(width, value_deviation), settings_(settings), assign_eps_(assign_eps) {}

  /// The member `groups` of the result is an update, which the caller adds to the argument `groups`.
  Grouped forward(const at::Tensor& groups, const at::Tensor& tokens, const at::Tensor& mask, const at::Tensor& noise) {
    const at::Tensor padding = mask.defined() ? mask.logical_not().unsqueeze(1) : at::Tensor();  // [B, 1, L]
    const at::Tensor products = at::matmul(q_proj_(groups), k_proj_(tokens).mT());                // [B, K, L]
    const at::Tensor scores = at_least_float(products) / std::sqrt(static_cast<double>(groups.size(2)));
    Grouped out;
    const at::Tensor soft = scores.softmax(1);
    out.soft_assignment = without(padding, soft);
    const at::Tensor competing =
        noise.defined() ? (scores + without(padding, noise.detach())) / settings_.gumbel_tau : scores;
    const at::Tensor shares = noise.defined() ? competing.softmax(1) : soft;
    out.assignment = shares.argmax(1);
    const bool of_logarithms = !settings_.hard && assign_eps_ == 0;
    const at::Tensor weights = of_logarithms ? soft_weights(competing, padding) : weights_of(shares, out.assignment, padding);
    if (padding.defined()) out.assignment = out.assignment.masked_fill(padding.squeeze(1), -1);
    out.groups = proj_(at::matmul(weights, v_proj_(tokens)));
    return out;
  }

 private:
  /// Returns x [B, K, L] with 0 at padding.
  static at::Tensor without(const at::Tensor& padding, const at::Tensor& x) {
    return padding.defined() ? x.masked_fill(padding, 0) : x;
  }

  /// Returns the weight of each token j in each group k, A_kj / D_k. A is one-hot if `hard` is set, and otherwise equals `shares`. D_k is
  /// the sum of A_kj over the tokens, plus assign_eps. shares [B, K, L]: each group's share of each token.
  at::Tensor weights_of(const at::Tensor& shares, const at::Tensor& assignment, const at::Tensor& padding) const {
    at::Tensor weights = shares;
    // The value is exactly one-hot, because `shares - shares.detach()` is exactly 0. This term only adds the gradient
    // of the shares.
    if (settings_.hard)
      weights = at::zeros_like(shares).scatter_(1, assignment.unsqueeze(1), 1) + (shares - shares.detach());
    weights = without(padding, weights);
    at::Tensor total = weights.sum(2, /*keepdim=*/true) + assign_eps_;  // [B, K, 1]
    // The weights of a group without a token are divided by 1, because dividing them by a small number would enlarge their straight-through
    // gradient.
    total = total.masked_fill(total.detach() == 0, 1);
    return weights / total;
  }

  /// Does the same as weights_of() for soft shares with assign_eps 0, but computes with logarithms. So a group whose
  /// shares of all tokens are tiny still gets a weighted mean of the tokens, although the shares and their sum would
  /// underflow.
  static at::Tensor soft_weights(const at::Tensor& competing, const at::Tensor& padding) {
    const at::Tensor logarithms = competing.log_softmax(1);
    if (!padding.defined()) return logarithms.softmax(2);
    // Minus infinity would make the softmax NaN in a row that is all padding, so padding gets the lowest finite number.
    return without(padding, logarithms.masked_fill(padding, std::numeric_limits<float>::lowest()).softmax(2));
  }

  GroupingSettings settings_;
  double assign_eps_;
};

class PlainGrouping : public GroupingBlock {
 public:
  PlainGrouping(const GroupingSettings& settings, const GroupingShape& shape) : GroupingBlock(shape.output_groups) {
    // This deviation keeps the scale of the values. A smaller one would shrink them, and no norm or MLP follows that could enlarge them
    // again.
    const double deviation = 1 / std::sqrt(static_cast<double>(shape.width));
    assign_ = register_module(
        "assign", std::make_shared<AssignAttention>(settings, settings.assign_eps.value_or(0), shape.width, deviation));
  }

  Grouped forward(const at::Tensor& tokens, const at::Tensor& groups, const at::Tensor& mask,
                  const at::Tensor& noise) override {
    Grouped out = assign_->forward(groups, zero_padding(tokens, mask), mask, noise);
    out.groups = groups + out.groups;
    return out;
  }

 private:
  std::shared_ptr<AssignAttention> assign_;
};

/// GroupViT's `pre_assign_attn`: the groups attend to the tokens before the tokens are assigned.
class PreAssignAttention : public torch::nn::Module {
 public:
  PreAssignAttention(std::int64_t width, std::int64_t heads)
      : attn_(register_module("attn", std::make_shared<GroupsAttend>(width, heads))),
        norm2_(register_module("norm2", std::make_shared<LayerNorm>(width, kNormEps))),
        mlp_(register_module("mlp", std::make_shared<FcMlp>(width, 4 * width, width))),
        norm_post_(register_module("norm_post", std::make_shared<LayerNorm>(width, kNormEps))) {}

  at::Tensor forward(const at::Tensor& groups, const at::Tensor& tokens, const at::Tensor& mask) {
    const at::Tensor attended = groups + attn_->forward(groups, tokens, mask);
    return norm_post_->forward(attended + mlp_->forward(norm2_->forward(attended)));
  }

 private:
  std::shared_ptr<GroupsAttend> attn_;
  std::shared_ptr<LayerNorm> norm2_;
  std::shared_ptr<FcMlp> mlp_;
  std::shared_ptr<LayerNorm> norm_post_;
};

class GroupVitGrouping : public GroupingBlock {
 public:
  GroupVitGrouping(const GroupingSettings& settings, const GroupingShape& shape) : GroupingBlock(shape.output_groups) {
    const std::int64_t width = shape.width;
    const auto norm = [&](const char* name) {
      return register_module(name, std::make_shared<LayerNorm>(width, kNormEps));
    };
    norm_tokens_ = norm("norm_tokens");
    mlp_inter_ = register_module("mlp_inter", std::make_shared<FcMlp>(shape.groups, width / 2, shape.output_groups));
    norm_post_tokens_ = norm("norm_post_tokens");
    norm_x_ = norm("norm_x");
    pre_assign_attn_ = register_module("pre_assign_attn", std::make_shared<PreAssignAttention>(width, shape.heads));
    assign_ = register_module("assign", std::make_shared<AssignAttention>(settings, settings.assign_eps.value_or(1),
                                                                          width, kGroupVitDeviation));
    norm_new_x_ = norm("norm_new_x");
    mlp_channels_ = register_module("mlp_channels", std::make_shared<FcMlp>(width, 4 * width, width));
  }

  Grouped forward(const at::Tensor& tokens, const at::Tensor& groups, const at::Tensor& mask,
                  const at::Tensor& noise) override {
    const at::Tensor x = norm_x_->forward(zero_padding(tokens, mask));
    const at::Tensor fewer = mlp_inter_->forward_groups(norm_tokens_->forward(groups));  // [B, K, d]
    const at::Tensor queries = pre_assign_attn_->forward(norm_post_tokens_->forward(fewer), x, mask);
    Grouped out = assign_->forward(queries, x, mask, noise);
    const at::Tensor updated = queries + out.groups;
    out.groups = updated + mlp_channels_->forward(norm_new_x_->forward(updated));
    return out;
  }

 private:
  std::shared_ptr<LayerNorm> norm_tokens_, norm_post_tokens_, norm_x_, norm_new_x_;
  std::shared_ptr<FcMlp> mlp_inter_, mlp_channels_;
  std::shared_ptr<PreAssignAttention> pre_assign_attn_;
  std::shared_ptr<AssignAttention> assign_;
};

}  // namespace

at::Tensor GroupingBlock::draw_noise(const at::Tensor& tokens) const {
  if (!is_training() || !parameters().front().requires_grad()) return {};
  const std::int64_t batch = tokens.size(0), length = tokens.size(1);
  const at::Tensor uniform = row_uniform(batch, length * output_groups_, tokens.device());
  return uniform.log().neg().log().neg().view({batch, length, output_groups_}).mT();
}

std::shared_ptr<GroupingBlock> make_grouping_block(const GroupingSettings& settings, const GroupingShape& shape) {
  if (settings.variant == "plain") {
    TORCH_CHECK(shape.groups == shape.output_groups, "a plain grouping block has as many output groups as input groups, not ",
                shape.output_groups, " of ", shape.groups);
    return std::make_shared<PlainGrouping>(settings, shape);
  }
  return std::make_shared<GroupVitGrouping>(settings, shape);
}

}  // namespace tessera
