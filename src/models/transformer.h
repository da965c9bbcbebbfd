#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>

#include <torch/nn/modules/container/modulelist.h>

#include "src/models/transformer_block.h"

namespace tessera {

/// Settings that the image and the text transformer share.
struct TransformerSettings {
  std::int64_t width = 768;
  std::int64_t layers = 12;
  std::int64_t heads = 12;
  std::optional<std::int64_t> head_width;
  std::optional<std::int64_t> key_heads;
  std::string norm = "layer";
  std::string block_norm = "before";
  bool first_norm = true;
  double mlp_ratio = 4.0;
  std::optional<std::int64_t> mlp_hidden;
  std::string mlp = "plain";
  bool mlp_norm = false;
  bool mlp_input_norm = false;
  std::string qkv_bias = "all";
  bool out_bias = true;
  bool mlp_bias = true;
  bool qk_norm = false;
  bool attention_norm = false;
  std::string attention_gate = "none";
  std::optional<double> score_scale;
  std::string activation = "gelu";
  double norm_eps = 1e-5;
  std::optional<double> layer_scale_init;
  double drop_path = 0.0;
  std::string final_norm = "tokens";
  bool grad_checkpointing = false;
};

template <class Visitor>
void fields(Visitor& v, TransformerSettings& s) {
  v("width", s.width, "width of the tokens", config::at_least(1));
  v("layers", s.layers, "number of blocks", config::in_range(0, config::kMostCount));
  v("heads", s.heads, "attention heads; divides width", config::at_least(1));
  v("head_width", s.head_width, "width of a head, if it is not width / heads (Gemma, mT5); null: width / heads");
  v("key_heads", s.key_heads,
    "heads of keys and values, each of which serves heads / key_heads heads of queries (Gemma); divides heads; null: heads");
  v("norm", s.norm,
    "layer: LayerNorm; layer_no_bias: LayerNorm without bias (ModernBERT); rms: RMSNorm, which has no bias and subtracts no mean "
    "(OpenCLIP's modern text tower, mT5, Gemma)",
    config::one_of({"layer", "layer_no_bias", "rms"}));
  v("block_norm", s.block_norm,
    "where a block's norms are: before: before attention and MLP (CLIP); after: after each sum with the input (BERT); on_updates: "
    "after attention and MLP, before the sums (EVA-02's largest); both: before and on_updates (Gemma)",
    config::one_of({"before", "after", "on_updates", "both"}));
  v("first_norm", s.first_norm, "whether the first block has a norm before attention (ModernBERT: false, because pre_norm is there)");
  v("mlp_ratio", s.mlp_ratio, "hidden width of the MLP = int(width * mlp_ratio)", config::above(0));
  v("mlp_hidden", s.mlp_hidden, "hidden width of the MLP, if it is not int(width * mlp_ratio); null: use mlp_ratio");
  v("mlp", s.mlp, "plain, or gated: activation(gate) * linear (SwiGLU with silu: EVA-02, DINOv2-g, DINOv3)",
    config::one_of({"plain", "gated"}));
  v("mlp_norm", s.mlp_norm, "LayerNorm on the MLP's hidden layer (EVA-02)");
  v("mlp_input_norm", s.mlp_input_norm, "a second LayerNorm before the MLP (ViTamin)");
  v("qkv_bias", s.qkv_bias, "biases of queries, keys and values: all, none, all but one (no_key: EVA, DINOv3), or only one",
    config::one_of({"all", "none", "no_query", "no_key", "no_value", "query", "key", "value"}));
  v("out_bias", s.out_bias, "whether attention's last projection has a bias");
  v("mlp_bias", s.mlp_bias, "whether the MLP's linear layers have biases");
  v("qk_norm", s.qk_norm, "LayerNorm over each head's queries and keys");
  v("attention_norm", s.attention_norm, "LayerNorm on the heads' output, before the last projection (EVA-02)");
  v("attention_gate", s.attention_gate,
    "a linear map of attention's input whose sigmoid multiplies the heads' output: none; plain; or biased (OpenCLIP's modern text tower)",
    config::one_of({"none", "plain", "biased"}));
  v("score_scale", s.score_scale, "factor of attention's scores (mT5: 1); null: (width of a head)^-1/2");
  v("activation", s.activation,
    "gelu (exact), gelu_tanh, quick_gelu (x sigmoid(1.702 x), OpenAI's weights), silu or relu",
    config::one_of({"gelu", "gelu_tanh", "quick_gelu", "silu", "relu"}));
  v("norm_eps", s.norm_eps, "epsilon of every norm (big_vision and timm: 1e-6)", config::above(0));
  v("layer_scale_init", s.layer_scale_init, "initial value of LayerScale; null: none");
  v("drop_path", s.drop_path,
    "share of samples that skip an update of the last block in training; for earlier blocks the share decreases linearly, to 0 at the "
    "first (stochastic depth, Huang et al. 2016)",
    config::in_half_open(0, 1));
  v("final_norm", s.final_norm,
    "tokens: on every token, before the read-out; pooled: on the read-out's vector; none: left to the read-out (attentional_pool)",
    config::one_of({"tokens", "pooled", "none"}));
  v("grad_checkpointing", s.grad_checkpointing,
    "keep only each block's input for the backward pass, which computes the block again: less memory for one more forward pass");
}

std::optional<config::Problem> validate(const TransformerSettings& settings);

/// Returns the hidden width of the MLP.
std::int64_t mlp_width(const TransformerSettings& settings);

/// Returns the width of an attention head.
std::int64_t head_width(const TransformerSettings& settings);

/// The residual blocks `resblocks.0` ..., with stochastic depth in training. The random numbers for stochastic depth come from
/// row_uniform(), so a row skips the same residual branches however the batch is split into ranks and chunks.
class Transformer : public torch::nn::Module {
 public:
  /// A function that returns the feed-forward part of the block with this number. If it returns null, the block uses the Mlp that the
  /// settings describe.
  using FeedForwardOfBlock = std::function<std::shared_ptr<FeedForward>(std::int64_t block)>;

  Transformer(const TransformerSettings& settings, BlockInitialization initialization,
              const FeedForwardOfBlock& feed_forward = {});
  /// Runs the blocks from number `first` on. x [B, N, width], or packed [T, width] -> the same shape.
  at::Tensor forward(const at::Tensor& x, const SequenceInfo& sequence = {}, std::int64_t first = 0) {
    return residual_sum(run(x, sequence, first));
  }
  /// Does the same, but leaves the last block's update to the norm that follows.
  ResidualStream run(const at::Tensor& x, const SequenceInfo& sequence = {}, std::int64_t first = 0);
  /// Runs all blocks but the last. Then runs the last block twice on their output: as an ordinary block, and as the given kind of last
  /// block. Returns the two results. x [B, N, width]: tokens of whole images. Throws c10::Error in training mode or if there are no blocks.
  std::array<at::Tensor, 2> forward_both(at::Tensor x, const SequenceInfo& sequence, LastBlock kind);
  /// Returns the block that a parameter `transformer.resblocks.N.*` belongs to; nullopt for other names.
  static std::optional<std::int64_t> block_of(const std::string& parameter);

 private:
  TransformerBlock& block(std::int64_t number);

  torch::nn::ModuleList resblocks_;
  double drop_path_;
  bool grad_checkpointing_;
};

}  // namespace tessera
