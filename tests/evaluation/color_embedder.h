#pragma once
// Embedders with known similarities, for tests that need no model.

#include <string>
#include <vector>

#include <ATen/ATen.h>

#include <tessera/base/text.h>
#include <tessera/evaluation/embedder.h>

namespace tessera::test {

/// The base class of embedders without a model.
class FixedEmbedder : public Embedder {
 public:
  Preprocessing prepared;

  explicit FixedEmbedder(config::Size image_size, config::Size grid = 1) : grid_(grid) { prepared.image_size = image_size; }
  const Preprocessing& preprocessing() const override { return prepared; }
  config::Size grid() const override { return grid_; }
  bool takes_texts() const override { return true; }

 private:
  config::Size grid_;
};

/// Embeds an image as its mean color and a text as the sum of the colors that it names.
class ColorEmbedder final : public FixedEmbedder {
 public:
  bool sparse = false;

  ColorEmbedder() : FixedEmbedder(8) {}
  using Embedder::encode_images;
  TowerFeatures encode_images(const TowerInput& images, const ViewNeeds& /*needs*/) const override {
    const at::Tensor& pixels = images.pixels;
    TowerFeatures out;
    out.global = pixels.to(at::kDouble).mean({2, 3});
    return out;
  }
  TowerFeatures encode_texts(const std::vector<std::string>& texts, const ViewNeeds& /*needs*/) const override {
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
      return dense.to(at::kDouble) / dense.to(at::kDouble).norm(2, {1}, true).clamp_min(1e-12);
    };
    return unit(images.global).matmul(unit(texts.global).t());
  }
  TowerFeatures compact(const TowerFeatures& features) const override {
    if (!sparse) return features;
    TowerFeatures out = features;
    out.global = features.global.to_sparse();
    return out;
  }
};

}  // namespace tessera::test
