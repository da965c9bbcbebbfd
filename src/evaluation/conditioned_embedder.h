#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "src/evaluation/metrics/conditioned_similarity.h"
#include <tessera/evaluation/embedder_view.h>

namespace tessera {

/// Compares images with texts through the text-conditioned pool that the objective was trained with (FLAIR): each text pools the tokens of
/// the image (TowerFeatures::tokens). encode_images() therefore always returns tokens. The embeddings of images and texts stay unchanged.
/// The norm of a class's embedding is the mean of the norms of its prompts' embeddings.
class ConditionedEmbedder final : public EmbedderView {
 public:
  /// If `candidates` is set, only the `candidates` texts with the greatest cosine are compared with an image through the pool; the
  /// other texts rank behind them, by cosine. Otherwise all texts are compared through the pool. encode_images() throws UserError if the
  /// model's tokens do not fit the pool; the message names `option`, the setting that asked for the pool. `model` must outlive this
  /// object.
  ConditionedEmbedder(const Embedder& model, std::shared_ptr<TextConditionedPool> pool,
                      std::optional<std::int64_t> candidates, std::string option);

  using EmbedderView::encode_images;
  TowerFeatures encode_images(const TowerInput& images, const ViewNeeds& needs) const override;
  TowerFeatures classes(const TowerFeatures& prompts, std::int64_t per_class) const override;
  at::Tensor similarity(const TowerFeatures& images, const TowerFeatures& texts) const override;
  bool compares_by_cosine() const override { return false; }

  /// Returns an object that scores images against these texts. The object is kept until the method is called with other texts, so
  /// that the texts' queries are projected only once. Not thread-safe.
  const metrics::ConditionedSimilarity& with(const TowerFeatures& texts) const;

 private:
  std::shared_ptr<TextConditionedPool> pool_;
  std::optional<std::int64_t> candidates_;
  std::string option_;
  mutable at::Tensor last_texts_;
  mutable std::optional<metrics::ConditionedSimilarity> last_;
};

}  // namespace tessera
