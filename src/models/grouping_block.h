#pragma once

#include <memory>
#include <optional>
#include <string>

#include <torch/nn/module.h>

#include <tessera/config/fields.h>

namespace tessera {

/// How tokens are assigned to groups.
struct GroupingSettings {
  std::string variant = "plain";
  bool hard = true;
  double gumbel_tau = 1.0;
  std::optional<double> assign_eps;
};

template <class Visitor>
void fields(Visitor& v, GroupingSettings& s) {
  v("variant", s.variant,
    "plain: the text group transformer's eq. 1-4; groupvit: GroupViT's whole block, which adds norms and MLPs",
    config::one_of({"plain", "groupvit"}));
  v("hard", s.hard, "each token belongs to one group, with a straight-through gradient; false: to all, with soft weights");
  v("gumbel_tau", s.gumbel_tau, "temperature that divides scores and Gumbel noise in training; not used without noise",
    config::above(0));
  v("assign_eps", s.assign_eps, "added to the sum that a group's weights are divided by; null: 0 for plain, 1 for groupvit",
    config::at_least(0));
}

/// Sizes of one grouping block.
struct GroupingShape {
  std::int64_t width = 0;
  std::int64_t groups = 0;         // number of input groups
  std::int64_t output_groups = 0;  // number of output groups; in variant `plain` equal to `groups`
  std::int64_t heads = 1;          // number of attention heads before the assignment; only in variant `groupvit`
};

/// The output of a grouping block that assigns L tokens to K groups.
struct Grouped {
  at::Tensor groups;           // [B, K, d]
  at::Tensor soft_assignment;  // [B, K, L], softmax of the scores over the groups; never includes noise; 0 at padding
  at::Tensor assignment;  // [B, L] int64, for each token the group with the greatest score (including noise); -1 at padding
};

/// Groups compete for tokens: each token's scores are normalized over the groups, and a group is updated with the mean
/// of its tokens' values (Xu et al. 2022, "GroupViT", section 3.2).
class GroupingBlock : public torch::nn::Module {
 public:
  /// tokens [B, L, d], groups [B, K', d], mask [B, L] bool (true for real tokens; undefined if all are real). Padding affects nothing and
  /// receives no gradient. noise [B, K, L] is added to the scores; undefined means no noise. A group without a token keeps finite values
  /// and gradients.
  virtual Grouped forward(const at::Tensor& tokens, const at::Tensor& groups, const at::Tensor& mask,
                          const at::Tensor& noise) = 0;

  /// Returns standard Gumbel noise [B, K, L] float32 for these tokens [B, L, d]. A row's numbers depend on its key (see row_uniform()), and
  /// a token's number does not depend on how much padding follows. In evaluation mode or if the parameters are frozen, returns an undefined
  /// tensor, so that a frozen encoder returns the same groups each time.
  at::Tensor draw_noise(const at::Tensor& tokens) const;

 protected:
  explicit GroupingBlock(std::int64_t output_groups) : output_groups_(output_groups) {}

 private:
  std::int64_t output_groups_;
};

/// Builds a grouping block. Its parameters are `assign.{q_proj,k_proj,v_proj,proj}`. Variant groupvit also has
/// `norm_tokens`, `norm_x`, `norm_post_tokens`, `norm_new_x`, `mlp_inter`, `mlp_channels` and `pre_assign_attn`, as in
/// GroupViT's checkpoints.
std::shared_ptr<GroupingBlock> make_grouping_block(const GroupingSettings& settings, const GroupingShape& shape);

}  // namespace tessera
