#pragma once

#include <memory>
#include <string>

#include <torch/nn/modules/linear.h>

#include "src/models/layers.h"
#include <tessera/models/registry.h>

namespace tessera {

struct FdtSettings {
  std::int64_t codes = 16384;
  std::int64_t code_width = 512;
  double temperature = 1000.0;
  std::string activation = "sparsemax";
  std::string masked_score = "exclude";
  std::int64_t skip_prefix = 0;
};

template <class Visitor>
void fields(Visitor& v, FdtSettings& s) {
  v("codes", s.codes, "number of codes in the codebook, which both towers share", config::at_least(1));
  v("code_width", s.code_width, "width of a code and of the result", config::at_least(1));
  v("temperature", s.temperature, "divides the products with the codes, in addition to sqrt(code_width)", config::above(0));
  v("activation", s.activation, "how scores become weights", config::one_of({"sparsemax", "softmax"}));
  v("masked_score", s.masked_score,
    "exclude: the maximum ignores padding; zero: padding counts with score 0 (official code)",
    config::one_of({"exclude", "zero"}));
  v("skip_prefix", s.skip_prefix, "number of leading tokens left out; a class token counts as one and is always left out",
    config::at_least(0));
}

/// `fdt`: finite discrete tokens (Chen et al. 2023, "Revisiting multimodal representation in contrastive learning"). Each token's query
/// scores every code of a codebook, and a code's score is its maximum over the tokens. The embedding is the sum of the codes, weighted with
/// the sparsemax of their scores. The read-out has its own norm (`q_map`), so the encoder has `final_norm: none`. Both towers use the same
/// codebook, which the tower that is built first stores as `readout.space_dict`.
class Fdt : public ReadOut {
 public:
  /// Intermediate results of the embedding.
  struct Codes {
    at::Tensor scores;   // [B, C], each code's maximum over the tokens; 0 in rows without a real token
    at::Tensor weights;  // [B, C], sum 1
  };

  Fdt(const FdtSettings& settings, const ReadOutContext& context);
  ReadOutOutput forward(const Encoded& encoded, const ViewNeeds& needs) override;
  Codes codes(const Encoded& encoded);
  std::int64_t output_width() const override { return settings_.code_width; }

 private:
  FdtSettings settings_;
  std::int64_t skip_;
  std::shared_ptr<LayerNorm> norm_in_, norm_out_;
  torch::nn::Linear linear_in_{nullptr}, linear_out_{nullptr};
  at::Tensor space_dict_;
};

}  // namespace tessera
