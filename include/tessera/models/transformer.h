#pragma once

#include <optional>
#include <string>

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>

#include <tessera/config/fields.h>
#include <tessera/models/attention.h>

namespace tessera {

/// What the image and the text transformer have in common.
struct TransformerSettings {
  std::int64_t width = 768;
  std::int64_t layers = 12;
  std::int64_t heads = 12;
  double mlp_ratio = 4.0;
  std::string activation = "gelu";
  double norm_eps = 1e-5;
  std::optional<double> layer_scale_init;
  std::string final_norm = "tokens";
  bool grad_checkpointing = false;
};

template <class Visitor>
void fields(Visitor& v, TransformerSettings& s) {
  v("width", s.width, "of the tokens", config::at_least(1));
  v("layers", s.layers, "number of blocks", config::at_least(0));
  v("heads", s.heads, "attention heads; divides width", config::at_least(1));
  v("mlp_ratio", s.mlp_ratio, "hidden width of the MLP = int(width * mlp_ratio)", config::above(0));
  v("activation", s.activation, "gelu (exact), gelu_tanh, or quick_gelu (x sigmoid(1.702 x), OpenAI's weights)",
    config::one_of({"gelu", "gelu_tanh", "quick_gelu"}));
  v("norm_eps", s.norm_eps, "epsilon of every LayerNorm (big_vision and timm: 1e-6)", config::above(0));
  v("layer_scale_init", s.layer_scale_init, "start value of LayerScale; null: none");
  v("final_norm", s.final_norm,
    "tokens: on every token before the read-out; pooled: after it; none: left to the read-out (attentional_pool)",
    config::one_of({"tokens", "pooled", "none"}));
  v("grad_checkpointing", s.grad_checkpointing,
    "keep only each block's input for the backward pass and compute the block again there: memory for a forward pass");
}

std::optional<config::Problem> validate(const TransformerSettings& settings);

/// "gelu", "gelu_tanh" or "quick_gelu" of x.
at::Tensor activate(const at::Tensor& x, const std::string& activation);

/// LayerNorm over the last dimension, biased variance, in float32 whatever the autocast type.
class LayerNorm : public torch::nn::Module {
 public:
  LayerNorm(std::int64_t width, double eps);
  at::Tensor forward(const at::Tensor& x);

 private:
  at::Tensor weight_;
  at::Tensor bias_;
  double eps_;
};

/// How weights start: the image transformer keeps PyTorch's defaults for its blocks, the text transformer uses the
/// GPT-2 like deviations of OpenAI's CLIP (attention width^-1/2, projections width^-1/2 (2 layers)^-1/2, MLP (2
/// width)^-1/2).
enum class BlockInitialization { image, text };

/// The residual blocks `resblocks.0` ...: x += ls_1 * attn(ln_1(x)); x += ls_2 * mlp(ln_2(x)).
class Transformer : public torch::nn::Module {
 public:
  Transformer(const TransformerSettings& settings, BlockInitialization initialization);
  /// x [B, N, width] -> [B, N, width], through the blocks from number `first` on.
  at::Tensor forward(at::Tensor x, const AttentionMask& mask = {}, std::int64_t first = 0);
  /// The block that a parameter `transformer.resblocks.N.*` belongs to; none for other names.
  static std::optional<std::int64_t> block_of(const std::string& parameter);

 private:
  torch::nn::ModuleList resblocks_;
  bool grad_checkpointing_;
};

}  // namespace tessera
