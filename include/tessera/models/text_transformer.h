#pragma once

#include <memory>
#include <optional>
#include <string>

#include <tessera/models/tower.h>
#include <tessera/models/transformer.h>

namespace tessera {

struct TextTransformerSettings : TransformerSettings {
  TextTransformerSettings() {
    width = 512;
    heads = 8;
  }
  std::int64_t context_length = 77;
  std::int64_t vocab_size = 49408;
  std::string attention = "causal";
  std::string class_token = "none";
  bool skip_padding = true;
};

template <class Visitor>
void fields(Visitor& v, TextTransformerSettings& s) {
  v("context_length", s.context_length, "longest text in tokens, special ones included", config::at_least(1));
  v("vocab_size", s.vocab_size, "number of token ids", config::at_least(1));
  fields(v, static_cast<TransformerSettings&>(s));
  v("attention", s.attention, "causal (CLIP) or bidirectional (SPARC, STAIR); padding is never attended to",
    config::one_of({"causal", "bidirectional"}));
  v("class_token", s.class_token,
    "a learned token behind the text, for the read-out cls (CoCa): none, appended, or shifted: its mask one place off, as "
    "in OpenCLIP's published CoCa models",
    config::one_of({"none", "appended", "shifted"}));
  v("skip_padding", s.skip_padding, "compute nothing for padding; false: compute it too, with the same result");
}

std::optional<config::Problem> validate(const TextTransformerSettings& settings);

/// CLIP's text transformer. Parameters carry OpenCLIP's names (token_embedding, positional_embedding, transformer,
/// ln_final). Texts may be shorter than context_length: the first positions are used.
class TextTransformer : public Encoder {
 public:
  explicit TextTransformer(const TextTransformerSettings& settings);
  /// What stands where the mask is false may be anything, also no valid id; with causal attention that is on the right.
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
  at::Tensor adapt_weight(const std::string& name, const at::Tensor& stored) const override;

 private:
  Encoded encode_with_class_token(const at::Tensor& ids, const at::Tensor& mask);

  TextTransformerSettings settings_;
  std::shared_ptr<torch::nn::Module> token_embedding_;
  at::Tensor token_weight_;
  at::Tensor positional_embedding_;
  at::Tensor class_embedding_;
  std::shared_ptr<Transformer> transformer_;
  std::shared_ptr<LayerNorm> ln_final_;
};

}  // namespace tessera
