#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <tessera/data/tokenizers/tokenizer.h>
#include <tessera/models/dual_encoder.h>

namespace tessera {

class FeatureStore;

/// Computes features of images and texts and their similarities. Evaluation sees a model only through this interface.
/// Features are on the CPU and have no gradient, floating ones are float32 or float64, and `global` is always present.
class Embedder {
 public:
  virtual ~Embedder() = default;

  /// How an image becomes the model's input.
  virtual const Preprocessing& preprocessing() const = 0;
  /// Returns the rows and columns of the patches in TowerFeatures::dense. Throws UserError if they differ between images
  /// (TowerFeatures::grids then holds them).
  virtual config::Size grid() const = 0;
  /// Returns the features of one batch of images, which image_batch() makes from uint8 [3, h, w]: the ones that similarity()
  /// uses and those that `needs` asks for.
  virtual TowerFeatures images(const TowerInput& pictures, const ViewNeeds& needs) const = 0;
  /// The same for pixels, uint8 [B, 3, H, W].
  TowerFeatures images(const at::Tensor& pixels, const ViewNeeds& needs) const { return images(image_input(pixels), needs); }

  /// Whether the model has a text tower; if not, texts() throws c10::Error.
  virtual bool takes_texts() const = 0;
  /// Returns the features of any number of texts, in the same way.
  virtual TowerFeatures texts(const std::vector<std::string>& texts, const ViewNeeds& needs) const = 0;
  /// Returns the features of classes for similarity(). `prompts` holds `per_class` consecutive prompts for each class. Patches
  /// (TowerFeatures::dense of images) are compared with the classes' `global` [C, D] by cosine. If the prompts have slots,
  /// `slots` [C, L, V] holds the classes' slots (metrics::class_slots).
  virtual TowerFeatures classes(const TowerFeatures& prompts, std::int64_t per_class) const = 0;
  /// Returns readable text for each token: a token that starts a word begins with a space, a special token is empty. Without a
  /// known tokenizer, returns the ids as numbers.
  virtual std::vector<std::string> token_texts(const std::vector<std::int64_t>& ids) const;

  /// Returns the similarity of images and texts or classes, floating [N, M]; greater is more similar.
  virtual at::Tensor similarity(const TowerFeatures& images, const TowerFeatures& texts) const = 0;
  /// Whether similarity() is the cosine of the `global` embeddings, so that callers may compute it themselves in bulk.
  virtual bool compares_by_cosine() const { return false; }
  /// Returns features of images, texts or classes in a form that takes less memory, for tasks that keep many of them.
  /// similarity() accepts them like the originals; no other method needs to. A model whose embeddings are mostly zeros stores
  /// `global` as sparse rows.
  virtual TowerFeatures compact(const TowerFeatures& features) const { return features; }

  /// The model's tokenizer; null if it has none or it is not known.
  virtual const Tokenizer* tokenizer() const { return nullptr; }
  /// The size of the vocabulary if entry k of the global embeddings, of images and of texts, is the weight of token k (both
  /// towers read out by token_projection, as in STAIR); it equals the embedding's width. Otherwise 0.
  virtual std::int64_t token_space() const { return 0; }
  /// Returns the activation of vocabulary tokens at each patch, before maximum and logarithm: p(h_j) of STAIR (Chen et al.
  /// 2023, eq. 4). `images` are features with `tokens` [B, P, W]; returns [B, P, ids] float. Throws c10::Error if
  /// token_space() is 0.
  virtual at::Tensor token_activations(const TowerFeatures& images, const std::vector<std::int64_t>& ids) const;
  /// Returns heat maps of where in each image the cosine of its global embedding with its text comes from, by Grad-CAM
  /// (metrics::grad_cam) on the encoder's output or, if the read-out uses only the class token, on the input of the last
  /// block. pixels uint8 [B, 3, H, W] and B texts; returns [B, rows, columns] float, at least 0. Throws UserError if the
  /// encoder has no feature map.
  virtual at::Tensor relevance(const at::Tensor& pixels, const TowerFeatures& texts) const;

  /// The cache of image embeddings (`global`, without further needs) by fingerprints of the images; null if there is none.
  virtual FeatureStore* feature_store() const { return nullptr; }
};

/// Compares the global embeddings of a dual encoder by cosine, in double. The embedding of a class is the mean of its prompts'
/// unit embeddings (Radford et al. 2021, 3.1.4). compact() makes sparse rows of embeddings in token_space(). A subclass that
/// compares in another way overrides both similarity() and compares_by_cosine(). The model is in evaluation mode for as long
/// as the embedder exists.
class DualEncoderEmbedder : public Embedder {
 public:
  /// `tokenizer` may be null if the model has no text tower. Texts are encoded in batches of `texts_at_a_time`.
  DualEncoderEmbedder(std::shared_ptr<DualEncoder> model, std::shared_ptr<const Tokenizer> tokenizer,
                      std::int64_t texts_at_a_time = 256);
  ~DualEncoderEmbedder() override;
  DualEncoderEmbedder(const DualEncoderEmbedder&) = delete;
  DualEncoderEmbedder& operator=(const DualEncoderEmbedder&) = delete;

  const Preprocessing& preprocessing() const override;
  config::Size grid() const override;
  using Embedder::images;
  TowerFeatures images(const TowerInput& pictures, const ViewNeeds& needs) const override;
  bool takes_texts() const override;
  TowerFeatures texts(const std::vector<std::string>& texts, const ViewNeeds& needs) const override;
  TowerFeatures classes(const TowerFeatures& prompts, std::int64_t per_class) const override;
  std::vector<std::string> token_texts(const std::vector<std::int64_t>& ids) const override;
  at::Tensor similarity(const TowerFeatures& images, const TowerFeatures& texts) const override;
  bool compares_by_cosine() const override { return true; }
  TowerFeatures compact(const TowerFeatures& features) const override;
  const Tokenizer* tokenizer() const override { return tokenizer_.get(); }
  std::int64_t token_space() const override;
  at::Tensor token_activations(const TowerFeatures& images, const std::vector<std::int64_t>& ids) const override;
  at::Tensor relevance(const at::Tensor& pixels, const TowerFeatures& texts) const override;

 private:
  std::shared_ptr<DualEncoder> model_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::int64_t texts_at_a_time_;
  bool was_training_;
};

/// Concatenates the features of consecutive batches, at least one. Compact features stay compact.
TowerFeatures joined(const std::vector<TowerFeatures>& batches);

}  // namespace tessera
