#include <ATen/ATen.h>

#include "src/models/token_embedding.h"
#include <tessera/models/position_embedding.h>
#include <tessera/models/text_transformer.h>

namespace tessera {

std::optional<config::Problem> validate(const TextTransformerSettings& s) {
  return validate(static_cast<const TransformerSettings&>(s));
}

TextTransformer::TextTransformer(const TextTransformerSettings& settings) : settings_(settings) {
  const auto table = std::make_shared<TokenEmbedding>(settings.vocab_size, settings.width);
  token_weight_ = table->weight;
  token_embedding_ = register_module<torch::nn::Module>("token_embedding", table);
  positional_embedding_ =
      register_parameter("positional_embedding", 0.01 * at::randn({settings.context_length, settings.width}));
  transformer_ = register_module("transformer", std::make_shared<Transformer>(settings, BlockInitialization::text));
  if (settings.final_norm != "none")
    ln_final_ = register_module("ln_final", std::make_shared<LayerNorm>(settings.width, settings.norm_eps));
}

Encoded TextTransformer::encode(const TowerInput& input) {
  const at::Tensor &ids = input.ids, &mask = input.mask;
  TORCH_CHECK(ids.defined(), "text_transformer: takes token ids");
  TORCH_CHECK(ids.dim() == 2 && ids.size(1) >= 1 && ids.size(1) <= settings_.context_length,
              "text_transformer: ids must be [B, L] with 1 <= L <= ", settings_.context_length, ", got ", ids.sizes());
  const std::int64_t length = ids.size(1);
  const bool causal = settings_.attention == "causal";
  const PackedRows rows = settings_.skip_padding ? packed_rows(mask, input.lengths) : PackedRows{};
  at::Tensor x;
  AttentionMask attention;
  if (rows.defined()) {
    x = embed_packed_tokens(token_weight_, positional_embedding_, ids, rows);
    attention.causal = causal;
    attention.packed = rows;
  } else {
    x = embed_tokens(token_weight_, positional_embedding_, ids, mask);
    attention = causal ? causal_attention_mask(mask, length) : self_attention_mask(mask, length);
  }
  x = transformer_->forward(x, {attention});
  if (settings_.final_norm == "tokens") x = ln_final_->forward(x);
  Encoded out;
  out.tokens = rows.defined() ? unpack(x, rows) : zero_padding(x, mask);
  out.mask = mask;
  out.ids = ids;
  return out;
}

std::int64_t TextTransformer::depth_of(const std::string& parameter) const {
  if (const auto block = Transformer::block_of(parameter)) return *block + 1;
  return parameter.starts_with("ln_final") ? depth() : 0;
}

at::Tensor TextTransformer::final_norm(const at::Tensor& pooled) {
  return settings_.final_norm == "pooled" ? ln_final_->forward(pooled) : pooled;
}

at::Tensor TextTransformer::adapt_weight(const std::string& name, const at::Tensor& stored) const {
  const bool resize =
      name == "positional_embedding" && stored.dim() == 2 && stored.size(1) == settings_.width && stored.size(0) > 0;
  return resize ? resize_text_position_embedding(stored, settings_.context_length) : stored;
}

}  // namespace tessera
