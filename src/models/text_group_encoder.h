#pragma once

#include <memory>
#include <optional>
#include <string>

#include <torch/nn/modules/container/modulelist.h>

#include "src/models/grouping_block.h"
#include "src/models/layers.h"
#include <tessera/models/tower.h>

namespace tessera {

struct TextGroupEncoderSettings {
  std::int64_t context_length = 77;
  std::int64_t vocab_size = 49408;
  std::int64_t width = 128;
  std::int64_t heads = 4;
  std::int64_t token_layers = 6;
  std::int64_t group_layers = 3;
  std::int64_t num_groups = 4;
  double mlp_ratio = 4.0;
  std::string activation = "gelu";
  double token_deviation = 0.02;
  double position_deviation = 0.01;
  GroupingSettings grouping;
};

template <class Visitor>
void fields(Visitor& v, TextGroupEncoderSettings& s) {
  v("context_length", s.context_length, "longest text in tokens, including special ones", config::at_least(1));
  v("vocab_size", s.vocab_size, "number of token ids", config::at_least(1));
  v("width", s.width, "width of tokens and groups", config::at_least(1));
  v("heads", s.heads, "attention heads; divides width", config::at_least(1));
  v("token_layers", s.token_layers, "number of blocks over tokens and groups, before the grouping block",
    config::in_range(0, config::kMostCount));
  v("group_layers", s.group_layers, "number of blocks over only the groups, after the grouping block",
    config::in_range(0, config::kMostCount));
  v("num_groups", s.num_groups, "K, the number of vectors for a text (paper: 4; 1, 2, 8, 16 in its ablation)",
    config::at_least(1));
  v("mlp_ratio", s.mlp_ratio, "hidden width of the MLP = int(width * mlp_ratio)", config::above(0));
  v("activation", s.activation, "gelu (exact), gelu_tanh, or quick_gelu (x sigmoid(1.702 x))",
    config::one_of({"gelu", "gelu_tanh", "quick_gelu"}));
  v("token_deviation", s.token_deviation, "standard deviation of the initial token embeddings", config::above(0));
  v("position_deviation", s.position_deviation, "standard deviation of the initial position embeddings",
    config::at_least(0));
  fields(v, s.grouping);
}

std::optional<config::Problem> validate(const TextGroupEncoderSettings& settings);

/// `text_group_encoder`: the text group transformer's text encoder (section 2.1.1). K learned group vectors are appended to the embedded
/// tokens, and both pass through `token_blocks`. A grouping block then assigns the tokens to the groups, and the groups pass through
/// `group_blocks` without the tokens. The encoder's tokens are the groups [B, K, width]. All groups count as real (Encoded::mask), even
/// groups without tokens and the groups of an empty text. `attention` is the soft weight of each text position in each group.
class TextGroupEncoder : public Encoder {
 public:
  explicit TextGroupEncoder(const TextGroupEncoderSettings& settings);
  /// Where the mask is false, ids may have any value, even an invalid one.
  Encoded encode(const TowerInput& input) override;
  std::int64_t width() const override { return settings_.width; }
  Modality modality() const override { return Modality::text; }
  std::int64_t vocab_size() const override { return settings_.vocab_size; }
  std::int64_t context_length() const override { return settings_.context_length; }
  at::Tensor token_embedding() const override { return token_weight_; }
  std::int64_t depth() const override { return settings_.token_layers + settings_.group_layers + 1; }
  std::int64_t depth_of(const std::string& parameter) const override;
  at::Tensor adapt_weight(const std::string& name, const at::Tensor& stored) const override;

  /// Returns the output of the token blocks, [B, L + K, width]: the tokens, followed by the groups. It is the input of the grouping block.
  at::Tensor encode_tokens(const at::Tensor& ids, const at::Tensor& mask);
  /// Computes the groups from the output of encode_tokens() and applies the last norm to them. `noise` [B, K, L] is passed to
  /// GroupingBlock::forward().
  Grouped group(const at::Tensor& tokens_and_groups, const at::Tensor& mask, const at::Tensor& noise);

 private:
  TextGroupEncoderSettings settings_;
  at::Tensor token_weight_;
  at::Tensor positional_embedding_;
  at::Tensor group_tokens_;
  torch::nn::ModuleList token_blocks_, group_blocks_;
  std::shared_ptr<GroupingBlock> grouping_;
  std::shared_ptr<LayerNorm> ln_final_;
};

}  // namespace tessera
