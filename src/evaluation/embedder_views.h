#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/evaluation/metrics/conditioned_similarity.h"
#include <tessera/evaluation/embedder_view.h>

namespace tessera {

/// Throws UserError unless the slots of images [B, L, V] and texts agree in number and width. The message begins with `option`.
void check_same_slots(const std::string& option, const at::Tensor& images, const at::Tensor& texts);

/// Returns the number of slots that each tower of a model outputs, found by encoding a blank image and a text. Throws UserError if the
/// towers output no slots or different numbers of slots. The message names `option`, the setting that asked for slots.
std::int64_t count_slots(const Embedder& model, const std::string& option);

/// Restricts a model to some of its slots: the embeddings of images and texts are made from these slots only (metrics::slot_embeddings).
/// The features `slots` and `attention` still hold all slots. encode_images() throws UserError if `needs` asks for `dense`, because patches
/// do not belong to slots.
class SlotEmbedder final : public EmbedderView {
 public:
  /// Each entry of `slots` must be below count_slots().
  SlotEmbedder(const Embedder& model, const std::vector<std::int64_t>& slots);
  using EmbedderView::encode_images;
  TowerFeatures encode_images(const TowerInput& images, const ViewNeeds& needs) const override;
  TowerFeatures encode_texts(const std::vector<std::string>& texts, const ViewNeeds& needs) const override;

 private:
  at::Tensor slots_;  // [S] int64
};

/// Cuts the embeddings of a model that compares by cosine to their first columns, as models with nested widths (Matryoshka) allow.
class CutEmbedder final : public EmbedderView {
 public:
  /// `width` is at most that of the embeddings.
  CutEmbedder(const Embedder& model, std::int64_t width) : EmbedderView(model), width_(width) {}
  using EmbedderView::encode_images;
  TowerFeatures encode_images(const TowerInput& images, const ViewNeeds& needs) const override { return cut(viewed().encode_images(images, needs)); }
  TowerFeatures encode_texts(const std::vector<std::string>& texts, const ViewNeeds& needs) const override {
    return cut(viewed().encode_texts(texts, needs));
  }
  /// Returns the embeddings alone, cut.
  TowerFeatures cut(const TowerFeatures& features) const;
  /// Returns the beginning of the names of metrics at this width, such as "width_64_".
  std::string prefix() const;

 private:
  std::int64_t width_;
};

/// Returns a view of the model for each of `widths` at which embeddings of `whole` columns can be cut; none if the model does not compare
/// dense embeddings by cosine.
std::vector<CutEmbedder> cut_embedders(const Embedder& model, const std::vector<std::int64_t>& widths, std::int64_t whole);

/// Applies a trained mask (metrics::SlotMask) to a model: multiplies each part of the image embeddings by its weight. Text embeddings stay
/// unchanged. encode_images() throws UserError if `needs` asks for `dense`.
class MaskEmbedder final : public EmbedderView {
 public:
  /// `weights` [P] has one weight for each of P equal parts of an image embedding. encode_images() throws UserError if the embedding cannot
  /// be split into P equal parts. The message names `path`, the mask's file.
  MaskEmbedder(const Embedder& model, at::Tensor weights, std::string path);
  using EmbedderView::encode_images;
  TowerFeatures encode_images(const TowerInput& images, const ViewNeeds& needs) const override;

 private:
  at::Tensor weights_;
  std::string path_;
};

/// Replaces the model's text tower for STAIR's text-encoder-free retrieval. The embedding of a text is 1 at each token that the
/// text contains, except special tokens, and 0 elsewhere (token_multi_hot). Image embeddings stay unchanged.
class MultiHotEmbedder final : public EmbedderView {
 public:
  /// Throws UserError if the model has no token_space(). The message names `option`, the setting that asked for this embedder.
  MultiHotEmbedder(const Embedder& model, const std::string& option);
  TowerFeatures encode_texts(const std::vector<std::string>& texts, const ViewNeeds& needs) const override;
};

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
