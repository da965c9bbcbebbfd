#pragma once

#include <string>
#include <vector>

#include <tessera/evaluation/embedder_view.h>

namespace tessera {

/// Number of slots that both towers of a model give. Throws UserError when they give none or do not agree; `option` is
/// what asked for slots, for the message. Encodes a blank picture and a text to find out.
std::int64_t count_slots(const Embedder& model, const std::string& option);

/// Sees a model through some of its slots: the embeddings of pictures and texts are those of these slots alone
/// (metrics::slot_embeddings). `slots` and `attention` stay those of all. A need for `dense` throws UserError: patches
/// lie in no slot.
class SlotEmbedder final : public EmbedderView {
 public:
  /// `slots` are among those of count_slots().
  SlotEmbedder(const Embedder& model, const std::vector<std::int64_t>& slots);
  using EmbedderView::images;
  TowerFeatures images(const TowerInput& pictures, const ViewNeeds& needs) const override;
  TowerFeatures texts(const std::vector<std::string>& texts, const ViewNeeds& needs) const override;

 private:
  at::Tensor slots_;  // [S] int64
};

/// Sees a model through a trained mask (metrics::SlotMask): each part of the pictures' embeddings is multiplied with its
/// weight; texts stay as they are. A need for `dense` throws UserError.
class MaskEmbedder final : public EmbedderView {
 public:
  /// weights [P], parts of equal width. `path` is the mask's file, for messages: images() throws UserError when the
  /// model's embedding does not fall into so many parts.
  MaskEmbedder(const Embedder& model, at::Tensor weights, std::string path);
  using EmbedderView::images;
  TowerFeatures images(const TowerInput& pictures, const ViewNeeds& needs) const override;

 private:
  at::Tensor weights_;
  std::string path_;
};

}  // namespace tessera
