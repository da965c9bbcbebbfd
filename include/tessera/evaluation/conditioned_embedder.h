#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <tessera/evaluation/embedder_view.h>
#include <tessera/evaluation/metrics/conditioned_similarity.h>

namespace tessera {

/// Sees a model through the text-conditioned pool that its objective was trained with (FLAIR): a picture is compared with a
/// text by what the text finds in its tokens (TowerFeatures::tokens), which images() always gives. The embeddings of pictures
/// and texts stay as they are; a class is as long as its prompts are on average.
class ConditionedEmbedder final : public EmbedderView {
 public:
  /// `candidates`: only so many texts of a picture, those of greatest cosine, are compared in this way, and the others come
  /// behind them by their cosine; none: all are. `option` is what asked for it, for messages: images() throws UserError where
  /// the model's tokens do not fit the pool. `model` outlives it.
  ConditionedEmbedder(const Embedder& model, std::shared_ptr<TextConditionedPool> pool,
                      std::optional<std::int64_t> candidates, std::string option);

  using EmbedderView::images;
  TowerFeatures images(const TowerInput& pictures, const ViewNeeds& needs) const override;
  TowerFeatures classes(const TowerFeatures& prompts, std::int64_t per_class) const override;
  at::Tensor similarity(const TowerFeatures& images, const TowerFeatures& texts) const override;
  bool compares_by_cosine() const override { return false; }

  /// The scores of texts, whose queries are projected once for as long as the same ones are asked for. One thread at a time.
  const metrics::ConditionedSimilarity& with(const TowerFeatures& texts) const;

 private:
  std::shared_ptr<TextConditionedPool> pool_;
  std::optional<std::int64_t> candidates_;
  std::string option_;
  mutable at::Tensor last_texts_;
  mutable std::optional<metrics::ConditionedSimilarity> last_;
};

}  // namespace tessera
