#pragma once

#include <memory>
#include <optional>
#include <string>

#include <torch/nn/modules/container/modulelist.h>

#include <tessera/config/fields.h>
#include <tessera/models/layers.h>

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
  v("context_length", s.context_length, "longest caption in tokens, special ones included", config::at_least(1));
  v("layers", s.layers, "blocks; few, so that the groups must hold what the caption says", config::at_least(1));
  v("heads", s.heads, "attention heads; divides the width of the token table", config::at_least(1));
  v("mlp_ratio", s.mlp_ratio, "hidden width of the MLP = int(width * mlp_ratio)", config::above(0));
  v("activation", s.activation, "gelu (exact), gelu_tanh, or quick_gelu (x sigmoid(1.702 x))",
    config::one_of({"gelu", "gelu_tanh", "quick_gelu"}));
  v("position_deviation", s.position_deviation, "standard deviation of the position embeddings at the start",
    config::at_least(0));
}

/// The text group transformer's decoder (section 2.2.2): from a caption's first tokens and its groups to the next token.
/// Embeds tokens by the text encoder's table, which it borrows and does not store, and which is its output matrix too;
/// so its logits are forward() times the table, for linear_cross_entropy().
class CaptionDecoder : public torch::nn::Module {
 public:
  /// table [V, w]. `path` is where the settings stand, for messages. Throws UserError if the heads do not divide w.
  CaptionDecoder(const CaptionDecoderSettings& settings, const at::Tensor& table, const std::string& path);
  /// ids and mask [B, L], real tokens first, and groups [B, K, w] -> [B, L - 1, w]. Row t follows from ids 0..t and is
  /// about id t + 1; rows that follow from padding hold anything finite. Throws UserError if L is above
  /// context_length, c10::Error for what does not fit otherwise.
  at::Tensor forward(const at::Tensor& ids, const at::Tensor& mask, const at::Tensor& groups);
  const at::Tensor& table() const { return table_; }

 private:
  std::string path_;
  std::int64_t context_length_;
  at::Tensor table_;
  at::Tensor positional_embedding_;
  torch::nn::ModuleList blocks_;
  std::shared_ptr<LayerNorm> ln_final_;
};

}  // namespace tessera
