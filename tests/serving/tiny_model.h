#pragma once

#include <memory>
#include <string>

#include "src/serving/service.h"
#include "tests/evaluation/letter_tokenizer.h"
#include <tessera/config/node.h>

namespace tessera {

/// Returns a model with random weights and images of 16 pixels, which answers a request in less than a millisecond.
inline InferenceModel tiny_model() {
  at::manual_seed(0);
  InferenceModel out;
  out.path = "tiny";
  out.model = std::make_shared<DualEncoder>(config::read<ModelSettings>(config::parse_yaml(
      "{preprocessing: {image_size: 16},"
      " image: {encoder: {name: vit, patch_size: 8, width: 8, layers: 1, heads: 1}, readout: gap, projection: {name: linear, embed_dim: 8}},"
      " text: {encoder: {name: text_transformer, width: 8, layers: 1, heads: 1, vocab_size: 32, context_length: 16}, readout: gap,"
      " projection: {name: linear, embed_dim: 8}}}",
      "tiny")));
  out.tokenizer = std::make_shared<LetterTokenizer>();
  return out;
}

inline std::unique_ptr<serving::ServedModel> served_tiny_model() {
  return std::make_unique<serving::ServedModel>("tiny", tiny_model(), EvaluationContext{}, serving::Batching{});
}

}  // namespace tessera
