#pragma once

#include <string>
#include <vector>

#include <tessera/evaluation/embedder_view.h>

namespace tessera {

/// Returns the number of slots that both towers of a model output; it encodes a blank image and a text to find out. Throws
/// UserError if they output none or do not agree. `option` names the setting that asked for slots, for the message.
std::int64_t count_slots(const Embedder& model, const std::string& option);

/// Restricts a model to some of its slots: the embeddings of images and texts are made from these slots only
/// (metrics::slot_embeddings). `slots` and `attention` still hold all slots. Throws UserError if `dense` is needed, because
/// patches do not belong to slots.
class SlotEmbedder final : public EmbedderView {
 public:
  /// Each entry of `slots` is below count_slots().
  SlotEmbedder(const Embedder& model, const std::vector<std::int64_t>& slots);
  using EmbedderView::images;
  TowerFeatures images(const TowerInput& pictures, const ViewNeeds& needs) const override;
  TowerFeatures texts(const std::vector<std::string>& texts, const ViewNeeds& needs) const override;

 private:
  at::Tensor slots_;  // [S] int64
};

/// Applies a trained mask (metrics::SlotMask) to a model: multiplies each part of the image embeddings by its weight. Text
/// embeddings stay unchanged. Throws UserError if `dense` is needed.
class MaskEmbedder final : public EmbedderView {
 public:
  /// `weights` [P] apply to P parts of equal width. images() throws UserError if the embedding cannot be split into P equal
  /// parts; `path` is the mask's file, for the message.
  MaskEmbedder(const Embedder& model, at::Tensor weights, std::string path);
  using EmbedderView::images;
  TowerFeatures images(const TowerInput& pictures, const ViewNeeds& needs) const override;

 private:
  at::Tensor weights_;
  std::string path_;
};

}  // namespace tessera
