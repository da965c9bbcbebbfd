#pragma once

#include <string>
#include <vector>

#include <tessera/evaluation/embedder.h>

namespace tessera {

/// Forwards every call to another embedder. It is the base class of embedders that change one behavior of a model.
class EmbedderView : public Embedder {
 public:
  /// `model` must outlive this object.
  explicit EmbedderView(const Embedder& model) : model_(model) {}

  const Preprocessing& preprocessing() const override { return model_.preprocessing(); }
  config::Size grid() const override { return model_.grid(); }
  using Embedder::encode_images;
  TowerFeatures encode_images(const TowerInput& images, const ViewNeeds& needs) const override {
    return model_.encode_images(images, needs);
  }
  bool takes_texts() const override { return model_.takes_texts(); }
  TowerFeatures encode_texts(const std::vector<std::string>& texts, const ViewNeeds& needs) const override {
    return model_.encode_texts(texts, needs);
  }
  TowerFeatures classes(const TowerFeatures& prompts, std::int64_t per_class) const override {
    return model_.classes(prompts, per_class);
  }
  std::vector<std::string> token_texts(const std::vector<std::int64_t>& ids) const override {
    return model_.token_texts(ids);
  }
  at::Tensor similarity(const TowerFeatures& images, const TowerFeatures& texts) const override {
    return model_.similarity(images, texts);
  }
  bool compares_by_cosine() const override { return model_.compares_by_cosine(); }
  TowerFeatures compact(const TowerFeatures& features) const override { return model_.compact(features); }
  const Tokenizer* tokenizer() const override { return model_.tokenizer(); }
  std::int64_t token_space() const override { return model_.token_space(); }
  at::Tensor token_activations(const TowerFeatures& images, const std::vector<std::int64_t>& ids) const override {
    return model_.token_activations(images, ids);
  }
  at::Tensor relevance(const at::Tensor& pixels, const TowerFeatures& texts) const override {
    return model_.relevance(pixels, texts);
  }

 protected:
  const Embedder& viewed() const { return model_; }

 private:
  const Embedder& model_;
};

}  // namespace tessera
