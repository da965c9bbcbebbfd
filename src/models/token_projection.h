#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <torch/nn/modules/linear.h>

#include "src/models/layers.h"
#include <tessera/models/registry.h>
#include <tessera/ops/token_max_projection.h>

namespace tessera {

struct TokenProjectionSettings {
  double layer_norm_eps = 1e-12;
  std::optional<std::vector<std::int64_t>> special_token_ids;
};

template <class Visitor>
void fields(Visitor& v, TokenProjectionSettings& s) {
  v("layer_norm_eps", s.layer_norm_eps, "epsilon of the transform's LayerNorm, as in BERT's prediction head", config::above(0));
  v("special_token_ids", s.special_token_ids,
    "ids of tokens that are never active; null: in the text tower the tokenizer's special tokens ([PAD], [CLS], ...), in the image "
    "tower the same as in the text tower",
    config::at_least(0));
}

/// `token_projection`: STAIR's head (Chen et al. 2023, eq. 4-5). A token's activations are
///   p(h_j) = E LayerNorm(GELU(dense(h_j))) + b,
/// one for each id of the vocabulary, and the embedding is log(1 + max(0, max over real j of p(h_j))): [B, V], never
/// negative, mostly 0 after training. E [V, text_width] is the text tower's token table, which both towers' heads
/// borrow and neither stores; `transform.dense` maps the tower's width to the table's. The positions j are patches or
/// text tokens; a class token is left out, as in the read-out `max`. [B, N, V] is never stored
/// (token_max_projection()). Special tokens are never active: their bias counts as minus infinity
/// (SharedParameters::special_token_ids).
class TokenProjection : public ReadOut {
 public:
  /// Throws UserError if the model has no text tower with a token table, or the table lacks a special token.
  TokenProjection(const TokenProjectionSettings& settings, const ReadOutContext& context);
  ReadOutOutput forward(const Encoded& encoded, const ViewNeeds& needs) override;
  std::int64_t output_width() const override { return table_.size(0); }

  /// Returns the embedding and, for each of its entries, the position that has the largest activation.
  TokenMaxProjection project(const Encoded& encoded);
  /// Returns the activations p(h_j) [B, P, Q] of tokens [B, P, w], computed only for the given ids. No token may be padding. ids: int64
  /// [Q], below V; an id may occur several times.
  at::Tensor activations(const at::Tensor& tokens, const at::Tensor& ids);

 private:
  /// Applies the head's transform: [B, N, w] -> [B, N, text_width].
  at::Tensor transform(const at::Tensor& tokens);
  /// Returns the bias [V], with minus infinity at special tokens.
  at::Tensor masked_bias();

  at::Tensor table_;  // [V, text_width], borrowed
  torch::nn::Linear dense_{nullptr};
  std::shared_ptr<LayerNorm> norm_;
  at::Tensor bias_;         // [V]
  at::Tensor special_ids_;  // ids of the special tokens, [S]; undefined if there are none
};

}  // namespace tessera
