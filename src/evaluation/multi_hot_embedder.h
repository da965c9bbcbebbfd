#pragma once

#include <string>
#include <vector>

#include <tessera/evaluation/embedder_view.h>

namespace tessera {

/// Replaces the model's text tower for STAIR's text-encoder-free retrieval. The embedding of a text is 1 at each token that the
/// text contains, except special tokens, and 0 elsewhere (token_multi_hot). Image embeddings stay unchanged.
class MultiHotEmbedder final : public EmbedderView {
 public:
  /// Throws UserError if the model has no token_space(). The message names `option`, the setting that asked for this embedder.
  MultiHotEmbedder(const Embedder& model, const std::string& option);
  TowerFeatures encode_texts(const std::vector<std::string>& texts, const ViewNeeds& needs) const override;
};

}  // namespace tessera
