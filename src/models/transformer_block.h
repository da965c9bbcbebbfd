#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include "src/models/layers.h"
#include "src/models/multi_head_attention.h"
#include <tessera/batch.h>
#include <tessera/config/fields.h>
#include <tessera/models/lora.h>

namespace tessera {

struct TransformerSettings;

/// What blocks must know about a sequence in addition to its tokens.
struct SequenceInfo {
  AttentionMask mask;          // the mask of self-attention
  config::Size grid = {0, 0};  // rows and columns of the patches; {0, 0} unless the sequence has all patches of an image, row by row
  std::int64_t prefix = 0;     // number of tokens before the patches: the class token and registers
  Rotation rotation;           // the rotation of queries and keys
  /// What the blocks with these numbers see instead of this (LocalAttentionSettings); null: all blocks see the same.
  std::shared_ptr<const SequenceInfo> local = nullptr;
  std::vector<std::int64_t> local_blocks = {};
};

/// The part of a block that follows attention. In files, its name within the block is `mlp`.
class FeedForward : public torch::nn::Module {
 public:
  /// Maps normalized tokens x [B, N, width], or packed [T, width], to the output of the residual branch, of the same shape.
  virtual at::Tensor forward(const at::Tensor& x, const SequenceInfo& sequence) = 0;
};

/// Sizes and options of an Mlp.
struct MlpShape {
  std::int64_t width = 0, hidden = 0;
  std::string activation = "gelu";
  bool gated = false;      // adds the map `c_gate`; the result is c_proj(activation(c_gate(x)) * c_fc(x))
  bool bias = true;         // whether the linear maps have biases
  bool norm = false;        // LayerNorm `norm` before c_proj
  bool input_norm = false;  // LayerNorm `norm_in` on the input
  double norm_eps = 1e-5;   // epsilon of both LayerNorms
  std::string norm_kind = "layer";
};

/// Two linear maps, `c_fc` and `c_proj`, with an activation between them; a gated Mlp has three maps.
class Mlp : public FeedForward, public Adaptable {
 public:
  explicit Mlp(const MlpShape& shape);
  at::Tensor forward(const at::Tensor& x, const SequenceInfo& sequence) override;
  /// Redraws the weights from normal distributions; biases do not change.
  void initialize(double fc_deviation, double projection_deviation);
  std::vector<LinearMap> linear_maps() const override;
  /// Adds the maps to the parts of a block that runs as one function. Returns false if such a function cannot run them: with adapters or
  /// norms of their own.
  bool add_to(BlockParts& parts) const;
  const at::Tensor& output_bias() const { return c_proj_->bias; }

 private:
  std::string activation_;
  torch::nn::Linear c_gate_{nullptr};
  torch::nn::Linear c_fc_;
  std::shared_ptr<LayerNorm> norm_, norm_in_;
  torch::nn::Linear c_proj_;
};

/// How weights are initialized. The image transformer keeps PyTorch's defaults for its blocks. The text transformer uses the GPT-2-like
/// standard deviations of OpenAI's CLIP (attention width^-1/2, projections width^-1/2 (2 layers)^-1/2, MLP (2 width)^-1/2).
enum class BlockInitialization { image, text };

/// Chooses how the transformer blocks of this thread run while an object of this class exists. Without one, a block that can runs as one
/// function on a GPU, where a kernel computes the norms and residual sums, and as single operators on the CPU, where the function would take
/// the same time and slightly more memory. Single operators have second derivatives if attention has: LibTorch's fused attention has none
/// (at::Context::setSDPUseFlash and so on).
class BlockPath {
 public:
  enum class Kind { by_device, one_function, operators };
  explicit BlockPath(Kind kind) : before_(std::exchange(kind_, kind)) {}
  ~BlockPath() { kind_ = before_; }
  BlockPath(const BlockPath&) = delete;
  BlockPath& operator=(const BlockPath&) = delete;
  static bool is_one_function(const at::Tensor& x) {
    return kind_ == Kind::one_function || (kind_ == Kind::by_device && x.is_cuda());
  }

 private:
  static inline thread_local Kind kind_ = Kind::by_device;
  Kind before_;
};

/// A pre-norm residual block: x += ls_1 * attn(ln_1(x)); x += ls_2 * mlp(ln_2(x)). With `block_norm: after`, x = ln_1(x + ls_1 * attn(x))
/// and so on; with `block_norm: on_updates`, x += ls_1 * ln_1(attn(x)) and so on; with `block_norm: both`,
/// x += ls_1 * ln_1_post(attn(ln_1(x))) and so on. LayerScale is present if the settings ask for it.
class TransformerBlock : public torch::nn::Module {
 public:
  /// `feed_forward` is the block's feed-forward part; the block does not initialize its weights. If it is null, the block creates the Mlp
  /// that the settings describe. `first`: whether this is the transformer's first block (the setting first_norm).
  TransformerBlock(const TransformerSettings& settings, BlockInitialization initialization,
                   std::shared_ptr<FeedForward> feed_forward = nullptr, bool first = false);
  /// Maps x [B, N, width], or packed [T, width], to the same shape. `factors` [B or T, 2] multiply the outputs of the two residual branches
  /// (attention, feed-forward) of each sample or packed token, for stochastic depth; undefined means 1.
  at::Tensor forward(const at::Tensor& x, const SequenceInfo& sequence = {}, const at::Tensor& factors = {});
  /// Does the same with a residual stream whose update the block adds. If BlockPath asks for one function, a block with its norms before its
  /// parts, without adapters, norms inside of attention or Mlp, or another feed-forward part, runs as one autograd function
  /// (src/ops/transformer_block.h) and leaves its last update to be added; its result has no second derivatives. Other blocks return a stream
  /// without an update.
  ResidualStream forward(const ResidualStream& stream, const SequenceInfo& sequence, const at::Tensor& factors = {});
  /// Returns the update that forward() leaves if its value is `value`, which may be undefined, and `factors` are those of forward().
  ResidualUpdate update_of(const at::Tensor& value, const at::Tensor& factors) const;
  /// Runs the block as the last one of a ViT whose patches are compared with texts (see last_block.h). Maps tokens x [B, N, width] of whole
  /// images to the same shape.
  at::Tensor forward_as(LastBlock kind, const at::Tensor& x, const SequenceInfo& sequence);
  /// The attention and feed-forward parts that support adapters.
  std::vector<std::shared_ptr<torch::nn::Module>> adaptable_modules() const;
  /// Whether the block's adapters draw random numbers in training. If they do, forward() must run inside a RowRngScope with the keys from
  /// token_keys().
  bool draws_for_tokens() const;

 private:
  enum class NormPlace { before, after, on_updates, both };
  static NormPlace norm_place(const std::string& block_norm);
  at::Tensor composed(const at::Tensor& input, const SequenceInfo& sequence, const at::Tensor& factors);
  bool add_to(BlockParts& parts, const SequenceInfo& sequence, const at::Tensor& factors) const;

  NormPlace norms_;
  std::shared_ptr<LayerNorm> ln_1_, ln_2_, ln_1_post_, ln_2_post_;  // ln_1_ may be null in the first block
  std::shared_ptr<MultiHeadAttention> attn_;
  std::shared_ptr<FeedForward> mlp_;
  std::shared_ptr<LayerScale> ls_1_, ls_2_;
};

}  // namespace tessera
