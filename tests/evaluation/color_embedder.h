#pragma once
// A model with known similarities.

#include <string>
#include <vector>

#include <ATen/ATen.h>

#include <tessera/base/text.h>
#include <tessera/evaluation/embedder.h>

namespace tessera::test {

/// Embeds an image as its mean color and a text as the sum of the colors that it names.
class ColorEmbedder final : public Embedder {
 public:
  bool sparse = false;

  const Preprocessing& preprocessing() const override { return preprocessing_; }
  config::Size grid() const override { return {1, 1}; }
  using Embedder::images;
  TowerFeatures images(const TowerInput& pictures, const ViewNeeds& /*needs*/) const override {
    const at::Tensor& pixels = pictures.pixels;
    TowerFeatures out;
    out.global = pixels.to(at::kDouble).mean({2, 3});
    return out;
  }
  bool takes_texts() const override { return true; }
  TowerFeatures texts(const std::vector<std::string>& texts, const ViewNeeds& /*needs*/) const override {
    TowerFeatures out;
    out.global = at::zeros({std::ssize(texts), 3}, at::kDouble);
    const std::vector<std::string> names = {"red", "green", "blue"};
    for (std::size_t i = 0; i < texts.size(); ++i)
      for (const std::string& word : split(texts[i], ' '))
        for (std::size_t c = 0; c < names.size(); ++c)
          if (word == names[c]) out.global[static_cast<std::int64_t>(i)][static_cast<std::int64_t>(c)] += 1;
    return out;
  }
  TowerFeatures classes(const TowerFeatures& prompts, std::int64_t /*per_class*/) const override { return prompts; }
  at::Tensor similarity(const TowerFeatures& images, const TowerFeatures& texts) const override {
    const auto unit = [](const at::Tensor& rows) {
      const at::Tensor dense = rows.is_sparse() ? rows.to_dense() : rows;
      return dense / dense.norm(2, {1}, true).clamp_min(1e-12);
    };
    return unit(images.global).matmul(unit(texts.global).t());
  }
  TowerFeatures compact(const TowerFeatures& features) const override {
    if (!sparse) return features;
    TowerFeatures out = features;
    out.global = features.global.to_sparse();
    return out;
  }

 private:
  Preprocessing preprocessing_ = [] {
    Preprocessing out;
    out.image_size = {8, 8};
    return out;
  }();
};

}  // namespace tessera::test
