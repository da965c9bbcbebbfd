#include <ATen/ATen.h>

#include "src/evaluation/multi_hot_embedder.h"
#include "src/evaluation/token_space.h"
#include "src/models/token_multi_hot.h"

namespace tessera {

MultiHotEmbedder::MultiHotEmbedder(const Embedder& model, const std::string& option) : EmbedderView(model) {
  require_token_space(model, option);
}

TowerFeatures MultiHotEmbedder::encode_texts(const std::vector<std::string>& texts, const ViewNeeds& needs) const {
  const TowerInput input = tokenizer()->encode_batch(texts);
  TowerFeatures out;
  out.global = token_multi_hot(input.ids, input.mask, token_space(), at::tensor(tokenizer()->special_ids(), at::kLong))
                   .to(at::kFloat);
  if (needs.input_ids) out.input = input;
  return out;
}

}  // namespace tessera
