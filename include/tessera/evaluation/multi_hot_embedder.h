#pragma once

#include <string>
#include <vector>

#include <tessera/evaluation/embedder_view.h>

namespace tessera {

/// Sees a model without its text tower (STAIR's text-encoder-free retrieval): the embedding of a text is 1 at each
/// token that it contains, special ones left out, and 0 elsewhere (token_multi_hot). Pictures stay as they are.
class MultiHotEmbedder final : public EmbedderView {
 public:
  /// `option` is what asked for it, for the message: throws UserError for a model without token_space().
  MultiHotEmbedder(const Embedder& model, const std::string& option);
  TowerFeatures texts(const std::vector<std::string>& texts, const ViewNeeds& needs) const override;
};

}  // namespace tessera
