#pragma once

#include <string>
#include <vector>

#include <tessera/evaluation/embedder_view.h>

namespace tessera {

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

}  // namespace tessera
