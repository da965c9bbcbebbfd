#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <tessera/evaluation/embedder_view.h>
#include <tessera/evaluation/metrics/conditioned_similarity.h>

namespace tessera {

/// Compares images with texts through the text-conditioned pool that the objective was trained with (FLAIR): each text pools
/// the tokens of the image (TowerFeatures::tokens), which images() therefore always returns. The embeddings of images and
/// texts stay unchanged. The embedding of a class has the mean length of its prompts' embeddings.
class ConditionedEmbedder final : public EmbedderView {
 public:
  /// With `candidates`, only that many texts per image, those of greatest cosine, are compared through the pool; the others
  /// rank behind them by cosine. Without it, all texts are. `option` names the setting that asked for this, for messages:
  /// images() throws UserError if the model's tokens do not fit the pool. `model` must outlive this object.
  ConditionedEmbedder(const Embedder& model, std::shared_ptr<TextConditionedPool> pool,
                      std::optional<std::int64_t> candidates, std::string option);

  using EmbedderView::images;
  TowerFeatures images(const TowerInput& pictures, const ViewNeeds& needs) const override;
  TowerFeatures classes(const TowerFeatures& prompts, std::int64_t per_class) const override;
  at::Tensor similarity(const TowerFeatures& images, const TowerFeatures& texts) const override;
  bool compares_by_cosine() const override { return false; }

  /// Returns an object that scores images against these texts. It is cached until other texts are passed, so that their
  /// queries are projected once. Not thread-safe.
  const metrics::ConditionedSimilarity& with(const TowerFeatures& texts) const;

 private:
  std::shared_ptr<TextConditionedPool> pool_;
  std::optional<std::int64_t> candidates_;
  std::string option_;
  mutable at::Tensor last_texts_;
  mutable std::optional<metrics::ConditionedSimilarity> last_;
};

}  // namespace tessera
