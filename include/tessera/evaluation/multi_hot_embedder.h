#pragma once

#include <string>
#include <vector>

#include <tessera/evaluation/embedder_view.h>

namespace tessera {

/// Replaces the model's text tower (STAIR's text-encoder-free retrieval): the embedding of a text is 1 at each token that it
/// contains, except special tokens, and 0 elsewhere (token_multi_hot). Image embeddings stay unchanged.
class MultiHotEmbedder final : public EmbedderView {
 public:
  /// Throws UserError for a model without token_space(); `option` names the setting that asked for this, for the message.
  MultiHotEmbedder(const Embedder& model, const std::string& option);
  TowerFeatures texts(const std::vector<std::string>& texts, const ViewNeeds& needs) const override;
};

}  // namespace tessera
