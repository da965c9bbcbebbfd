#pragma once

#include <memory>
#include <optional>
#include <string>

#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>

#include "src/models/layers.h"
#include <tessera/config/fields.h>

namespace tessera {

struct CaptionDecoderSettings {
  std::int64_t context_length = 77;
  std::int64_t layers = 1;
  std::int64_t heads = 1;
  double mlp_ratio = 4.0;
  std::string activation = "gelu";
  double position_deviation = 0.01;
};

template <class Visitor>
void fields(Visitor& v, CaptionDecoderSettings& s) {
  v("context_length", s.context_length, "longest caption in tokens, including special ones", config::at_least(1));
  v("layers", s.layers, "number of blocks; with few, captions depend more on what the decoder attends to",
    config::in_range(1, config::kMostCount));
  v("heads", s.heads, "attention heads; divides the decoder's width", config::at_least(1));
  v("mlp_ratio", s.mlp_ratio, "hidden width of the MLP = int(width * mlp_ratio)", config::above(0));
  v("activation", s.activation, "gelu (exact), gelu_tanh, or quick_gelu (x sigmoid(1.702 x))",
    config::one_of({"gelu", "gelu_tanh", "quick_gelu"}));
  v("position_deviation", s.position_deviation, "standard deviation of the initial position embeddings",
    config::at_least(0));
}

/// Sizes and shared parts of a decoder.
struct CaptionDecoderShape {
  // the token embeddings [V, w] to borrow from the text tower, for V tokens; undefined: the decoder creates its own table,
  // `token_embedding.weight`
  at::Tensor table;
  std::int64_t vocab_size = 0;    // V, the number of tokens; used only if the decoder creates its own table of embeddings
  std::int64_t width = 0;         // w, the width of the token embeddings; used only if the decoder creates its own table
  std::int64_t memory_width = 0;  // width of the tokens that the decoder attends to; 0 means w
  std::int64_t more_places = 0;   // number of position embeddings in addition to context_length
};

/// A decoder of captions. Its pre-norm blocks consist of self-attention, attention to the tokens of an encoder (the memory), and an MLP.
/// The decoder has its own table of token embeddings [V, w] or borrows one; a borrowed table is not stored with the decoder. The table is
/// also the output matrix: linear_cross_entropy() computes the logits as hidden states times the table. If the memory is not w wide,
/// `memory_projection` maps it to w.
class CaptionDecoder : public torch::nn::Module {
 public:
  /// `path` is where the settings are in the configuration, for messages. Throws UserError if the heads do not divide
  /// w.
  CaptionDecoder(const CaptionDecoderSettings& settings, const CaptionDecoderShape& shape, const std::string& path);
  /// Builds the text group transformer's decoder (section 2.2.2). The decoder borrows `table` [V, w], and its memory is w wide.
  CaptionDecoder(const CaptionDecoderSettings& settings, const at::Tensor& table, const std::string& path);

  /// Looks up ids [..., L] in the table -> [..., L, w]. Where mask [..., L] is false, the id may have any value and the
  /// result is 0.
  at::Tensor embed(const at::Tensor& ids, const at::Tensor& mask) const;
  /// Adds positions to the embedded sequences x [B * K, T, w], runs the blocks, and returns hidden states [B * K, T, w]. The memory [B, N,
  /// memory_width] holds the tokens of B images; K sequences share the tokens of one image. memory_mask [B, N] is true for tokens that are
  /// real (undefined if all are real). If `causal`, row t depends on positions 0..t, otherwise on all positions. Sequences without any real
  /// memory token attend to nothing. Throws c10::Error if shapes do not fit.
  at::Tensor decode(const at::Tensor& x, const at::Tensor& memory, const at::Tensor& memory_mask, bool causal);
  /// Computes hidden states [B, L - 1, w] from ids and mask [B, L], real tokens first, and the memory `groups` [B, K, w]. Row t depends on
  /// ids 0..t and predicts id t + 1; rows that depend on padding are finite but meaningless. Throws UserError if L is above context_length,
  /// and c10::Error if other sizes do not fit.
  at::Tensor forward(const at::Tensor& ids, const at::Tensor& mask, const at::Tensor& groups);

  const at::Tensor& table() const { return table_; }
  std::int64_t width() const { return table_.size(1); }
  /// The length of the longest sequence that decode() accepts.
  std::int64_t places() const { return positional_embedding_.size(0); }
  /// Throws UserError if `tokens`, the number of tokens of the longest caption, is above context_length.
  void check_length(std::int64_t tokens) const;

 private:
  at::Tensor run_blocks(at::Tensor x, const at::Tensor& memory, const at::Tensor& memory_mask, bool causal);

  std::string path_;
  std::int64_t context_length_;
  at::Tensor table_;
  at::Tensor positional_embedding_;
  torch::nn::Linear memory_projection_{nullptr};  // null: the memory is as wide as the decoder
  torch::nn::ModuleList blocks_;
  std::shared_ptr<LayerNorm> ln_final_;
};

}  // namespace tessera
