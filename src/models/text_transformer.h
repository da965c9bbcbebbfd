#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/models/transformer.h"
#include <tessera/models/tower.h>

namespace tessera {

/// Blocks in which a token attends only to near tokens, and which may have rotary positions of another base (ModernBERT, Gemma 3).
struct LocalAttentionSettings {
  std::vector<std::int64_t> blocks;
  std::int64_t window = 64;
  double rotary_base = 10000.0;
};

template <class Visitor>
void fields(Visitor& v, LocalAttentionSettings& s) {
  v("blocks", s.blocks, "numbers of these blocks, from 0", config::at_least(0));
  v("window", s.window, "a token attends to tokens at most this many places away", config::at_least(1));
  v("rotary_base", s.rotary_base, "rotary_base in these blocks", config::above(0));
}

struct TextTransformerSettings : TransformerSettings {
  TextTransformerSettings() {
    width = 512;
    heads = 8;
  }
  std::int64_t context_length = 77;
  std::int64_t vocab_size = 49408;
  std::string attention = "causal";
  std::string position_embedding = "learned";
  double rotary_base = 10000.0;
  std::string rotary_pairs = "neighbors";
  std::int64_t relative_buckets = 32;
  std::int64_t relative_distance = 128;
  std::optional<LocalAttentionSettings> local;
  std::optional<std::int64_t> position_rows;
  std::int64_t position_offset = 0;
  std::optional<std::int64_t> kept_positions;
  std::int64_t token_types = 0;
  double embedding_scale = 1.0;
  bool pre_norm = false;
  std::string class_token = "none";
  bool skip_padding = true;
};

template <class Visitor>
void fields(Visitor& v, TextTransformerSettings& s) {
  v("context_length", s.context_length, "longest text in tokens, including special ones", config::at_least(1));
  v("vocab_size", s.vocab_size, "number of token ids", config::at_least(1));
  fields(v, static_cast<TransformerSettings&>(s));
  v("attention", s.attention, "causal (CLIP) or bidirectional (SPARC, STAIR); padding is never attended to",
    config::one_of({"causal", "bidirectional"}));
  v("position_embedding", s.position_embedding,
    "learned; sinusoidal: fixed sines and cosines (NLLB's encoder); rotary: rotations of queries and keys (OpenCLIP's modern text tower, "
    "ModernBERT, Gemma); relative: learned biases of the scores by distance (mT5); or none",
    config::one_of({"learned", "sinusoidal", "rotary", "relative", "none"}));
  v("rotary_base", s.rotary_base, "rotary: pair i of a head of width d rotates by base^(-2 i / d) for each place", config::above(0));
  v("rotary_pairs", s.rotary_pairs,
    "rotary: which channels form a pair: neighbors (0 and 1, 2 and 3 ...) or halves (i and i + half of the head's width)",
    config::one_of({"neighbors", "halves"}));
  v("relative_buckets", s.relative_buckets,
    "relative: number of biases of a head, half of them for later tokens; half of these are for single distances, the others for ranges",
    config::at_least(4));
  v("relative_distance", s.relative_distance, "relative: from this distance on, all distances have the same bias", config::at_least(2));
  v("local", s.local, "blocks that attend to near tokens only (ModernBERT, Gemma): {blocks: [1, 2, 4, 5], window: 64}; null: none");
  v("position_rows", s.position_rows,
    "rows of the table of learned positions, if it is longer than a text (BERT, RoBERTa); null: context_length, plus one for a "
    "class token");
  v("position_offset", s.position_offset, "row of the first token's position; the rows before it are never used (RoBERTa and NLLB: 2)",
    config::at_least(0));
  v("kept_positions", s.kept_positions,
    "how a file's positions are fitted to another context_length: with 20, the first 20 stay and the others are stretched "
    "(Long-CLIP; 77 become 248), and a shorter context uses the first positions; null: all positions are interpolated (OpenCLIP)",
    config::at_least(0));
  v("token_types", s.token_types,
    "rows of the table of token types; its first row is added to every token (BERT: 2, RoBERTa: 1); 0: no table",
    config::at_least(0));
  v("embedding_scale", s.embedding_scale, "factor for the token embeddings, applied before positions are added (NLLB: 32)",
    config::above(0));
  v("pre_norm", s.pre_norm, "LayerNorm before the blocks (BERT)");
  v("class_token", s.class_token,
    "a learned token after the text, for the read-out cls (CoCa): none; appended; or shifted: appended, but with its mask one position "
    "off, as in OpenCLIP's published CoCa models",
    config::one_of({"none", "appended", "shifted"}));
  v("skip_padding", s.skip_padding, "skip the computation for padding; false: compute it too, with the same result");
}

std::optional<config::Problem> validate(const TextTransformerSettings& settings);

/// CLIP's text transformer and, depending on its settings, OpenCLIP's modern text tower and the encoders of BERT, RoBERTa, NLLB, ModernBERT,
/// mT5 and Gemma 3. Parameters have OpenCLIP's names (token_embedding, positional_embedding, transformer, ln_final), plus ln_pre,
/// type_embedding and relative_bias if the settings ask for them. Texts may be shorter than context_length; they use the first positions.
class TextTransformer : public Encoder {
 public:
  explicit TextTransformer(const TextTransformerSettings& settings);
  /// Where the mask is false, ids may have any value, even an invalid one. With causal attention, padding must be on
  /// the right.
  Encoded encode(const TowerInput& input) override;
  at::Tensor final_norm(const at::Tensor& pooled) override;
  std::int64_t width() const override { return settings_.width; }
  Modality modality() const override { return Modality::text; }
  bool norms_pooled() const override { return settings_.final_norm == "pooled"; }
  bool has_class_token() const override { return settings_.class_token != "none"; }
  std::int64_t vocab_size() const override { return settings_.vocab_size; }
  std::int64_t context_length() const override { return settings_.context_length; }
  at::Tensor token_embedding() const override { return token_weight_; }
  std::int64_t depth() const override { return settings_.layers + 1; }
  std::int64_t depth_of(const std::string& parameter) const override;
  /// If the stored position embeddings have another length than this encoder's, resizes them as the setting kept_positions defines, and
  /// logs the change.
  at::Tensor adapt_weight(const std::string& name, const at::Tensor& stored) const override;

 private:
  at::Tensor finish(const ResidualStream& last);
  Encoded encode_with_class_token(const at::Tensor& ids, const at::Tensor& mask);
  /// Returns the vectors that are added to the tokens at positions 0, 1, ...: [n, w], where n is at least `length`; undefined if nothing
  /// is added.
  at::Tensor positions(std::int64_t length) const;
  /// Returns what the blocks must know about texts with this mask [B, length], which are packed if `rows` is defined.
  SequenceInfo sequence_info(const at::Tensor& mask, std::int64_t length, const PackedRows& rows) const;
  /// Returns the biases [1, heads, length, length] of the scores; undefined if positions are not relative.
  at::Tensor score_bias(std::int64_t length) const;

  TextTransformerSettings settings_;
  std::shared_ptr<torch::nn::Module> token_embedding_;
  at::Tensor token_weight_;
  at::Tensor positional_embedding_;
  at::Tensor type_embedding_;
  at::Tensor relative_bias_;  // [buckets, heads]
  at::Tensor class_embedding_;
  std::shared_ptr<Transformer> transformer_;
  std::shared_ptr<LayerNorm> ln_pre_, ln_final_;
};

}  // namespace tessera
