#pragma once

#include <memory>

#include <torch/nn/module.h>

#include "src/models/layers.h"
#include "src/models/multi_head_attention.h"
#include <tessera/config/fields.h>
#include <tessera/ops/text_conditioned_pool.h>

namespace tessera {

struct TextConditionedPoolSettings {
  std::int64_t heads = 8;
  bool zero_token = true;
};

template <class Visitor>
void fields(Visitor& v, TextConditionedPoolSettings& s) {
  v("heads", s.heads, "attention heads of the pooling; must divide the embedding's width", config::at_least(1));
  v("zero_token", s.zero_token,
    "add one more key and value, all zeros, which a text that matches nothing in the image can attend to");
}

/// Pools an image for a text (FLAIR, arXiv 2412.03561, section 3.2): multi-head attention without a residual connection. The query is the
/// text's embedding; keys and values are the image's projected patches and a zero token. Queries, keys and values have separate LayerNorms
/// (`ln_q`, `ln_k`, `ln_v`). The projections have biases. Their parameters are named as in torch's MultiheadAttention (`attn.*`).
class TextConditionedPool : public torch::nn::Module {
 public:
  /// Throws UserError if the heads do not divide the width.
  TextConditionedPool(const TextConditionedPoolSettings& settings, std::int64_t embed_dim);

  struct Pooled {
    at::Tensor pooled;  // [B, Q, D], not normalized
    // [B, Q, P], without gradient: each patch's attention weight, averaged over the heads; the zero token's weight is left out
    at::Tensor attention;
  };
  /// Takes image_tokens [B, P, D], and queries [B, Q, D] (separate for each image) or [Q, D] (the same for all images).
  Pooled forward(const at::Tensor& image_tokens, const at::Tensor& queries);

  /// These functions compute queries, keys and values [..., D]. Each function applies its own LayerNorm and then its own projection.
  at::Tensor project_queries(const at::Tensor& queries);
  at::Tensor project_keys(const at::Tensor& image_tokens);
  at::Tensor project_values(const at::Tensor& image_tokens);
  /// Applies the last projection to the heads' outputs [..., D].
  at::Tensor project_output(const at::Tensor& heads_output);

  /// Returns this module's parameters in the form that the operators take (tessera/ops/text_conditioned_pool.h).
  TextPoolParameters parameters_of_operator() const;
  std::int64_t heads() const { return settings_.heads; }
  /// The width D of the embeddings.
  std::int64_t width() const { return width_; }
  bool zero_token() const { return settings_.zero_token; }

 private:
  TextConditionedPoolSettings settings_;
  std::int64_t width_;
  std::shared_ptr<LayerNorm> query_norm_, key_norm_, value_norm_;
  std::shared_ptr<MultiHeadAttention> attention_;
};

}  // namespace tessera
