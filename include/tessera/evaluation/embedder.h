#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include <ATen/core/Tensor.h>

#include <tessera/data/tokenizers/tokenizer.h>
#include <tessera/models/dual_encoder.h>

namespace tessera {

class FeatureStore;
class PackedWeights;

/// Computes features of images and texts and their similarities. Evaluation accesses a model only through this interface. Features are on
/// the CPU and have no gradient; floating-point features are float32 or float64; `global` is always present.
class Embedder {
 public:
  virtual ~Embedder() = default;

  /// Returns the settings of the preprocessing that turns an image into the model's input.
  virtual const Preprocessing& preprocessing() const = 0;
  /// Returns the numbers of rows and columns of the patches in TowerFeatures::dense. Throws UserError if the numbers differ between
  /// images; in that case TowerFeatures::grids holds them.
  virtual config::Size grid() const = 0;
  /// Returns features of one batch of images: the features that similarity() uses, and the features that `needs` asks for. image_batch()
  /// makes such a batch from images, uint8 [3, h, w].
  virtual TowerFeatures encode_images(const TowerInput& images, const ViewNeeds& needs) const = 0;
  /// Does the same as the other encode_images(), for pixels, uint8 [B, 3, H, W].
  TowerFeatures encode_images(const at::Tensor& pixels, const ViewNeeds& needs) const { return encode_images(image_input(pixels), needs); }

  /// Returns true if the model has a text tower. If it has none, encode_texts() throws c10::Error.
  virtual bool takes_texts() const = 0;
  /// Returns features of any number of texts: the features that similarity() uses, and the features that `needs` asks for.
  virtual TowerFeatures encode_texts(const std::vector<std::string>& texts, const ViewNeeds& needs) const = 0;
  /// Returns the features of classes for similarity(). `prompts` holds the features of `per_class` prompts for each class, one class after
  /// the other. The result's `global` [C, D] can be compared by cosine with image patches (TowerFeatures::dense). If the prompts have
  /// slots, the result's `slots` [C, L, V] are the classes' slots (metrics::class_slots).
  virtual TowerFeatures classes(const TowerFeatures& prompts, std::int64_t per_class) const = 0;
  /// Returns readable text for each token. The text of a token that starts a word begins with a space; that of a special token is
  /// empty. If the tokenizer is unknown, returns the ids as numbers.
  virtual std::vector<std::string> token_texts(const std::vector<std::int64_t>& ids) const;

  /// Returns the similarities of images with texts or classes, floating-point [N, M]; greater means more similar.
  virtual at::Tensor similarity(const TowerFeatures& images, const TowerFeatures& texts) const = 0;
  /// Returns true if similarity() is the cosine of the `global` embeddings. Callers may then compute cosines themselves instead of calling
  /// similarity().
  virtual bool compares_by_cosine() const { return false; }
  /// Returns features of images, texts or classes in a form that takes less memory, for tasks that keep many of them. similarity() must
  /// accept compact features as well as the original features; no other method needs to accept compact features. A model whose embeddings
  /// are mostly zeros stores `global` as sparse rows.
  virtual TowerFeatures compact(const TowerFeatures& features) const { return features; }

  /// Returns the model's tokenizer; null if it has none or the tokenizer is unknown.
  virtual const Tokenizer* tokenizer() const { return nullptr; }
  /// Returns the size of the vocabulary if the global embeddings of images and texts are token weights: entry k of an embedding is the
  /// weight of token k. Embeddings are token weights if both towers use the read-out token_projection, as in STAIR. Otherwise returns 0.
  virtual std::int64_t token_space() const { return 0; }
  /// Returns the activations of the vocabulary tokens `ids` at each patch, float [B, P, ids]: p(h_j) of STAIR (Chen et al. 2023,
  /// eq. 4), before the maximum and the logarithm. `images` are features with `tokens` [B, P, W]. Throws c10::Error if
  /// token_space() is 0.
  virtual at::Tensor token_activations(const TowerFeatures& images, const std::vector<std::int64_t>& ids) const;
  /// Returns heat maps that show which parts of each image contribute to the cosine of its global embedding with its text. They are
  /// computed by Grad-CAM (metrics::grad_cam) on the encoder's output or, if the read-out uses only the class token, on the input of the
  /// last block. Takes pixels, uint8 [B, 3, H, W], and B texts. Returns float [B, rows, columns], values of at least 0. Throws UserError if
  /// the encoder has no feature map.
  virtual at::Tensor relevance(const at::Tensor& pixels, const TowerFeatures& texts) const;

  /// Returns the cache of global embeddings, whose keys are fingerprints of images and texts; null if there is no cache.
  virtual FeatureStore* feature_store() const { return nullptr; }
};

/// Compares the global embeddings of a dual encoder by cosine, in double precision. The embedding of a class is the mean of its prompts'
/// unit embeddings (Radford et al. 2021, 3.1.4). If token_space() is above 0, compact() stores embeddings as sparse rows. A subclass that
/// compares in another way must override both similarity() and compares_by_cosine(). The model is in evaluation mode while the embedder
/// exists.
class DualEncoderEmbedder : public Embedder {
 public:
  /// `tokenizer` may be null if the model has no text tower. Texts are encoded in batches of `texts_at_a_time`. `precision` is the type of
  /// products: float32 or bfloat16. On the CPU, the embedder keeps a copy of the weights in a form that multiplies faster; with the precision
  /// Undefined, it multiplies by the weights themselves, which suits a few inputs.
  DualEncoderEmbedder(std::shared_ptr<DualEncoder> model, std::shared_ptr<const Tokenizer> tokenizer,
                      std::int64_t texts_at_a_time = 256, at::ScalarType precision = at::kFloat);
  ~DualEncoderEmbedder() override;
  DualEncoderEmbedder(const DualEncoderEmbedder&) = delete;
  DualEncoderEmbedder& operator=(const DualEncoderEmbedder&) = delete;

  const Preprocessing& preprocessing() const override;
  config::Size grid() const override;
  using Embedder::encode_images;
  TowerFeatures encode_images(const TowerInput& images, const ViewNeeds& needs) const override;
  bool takes_texts() const override;
  TowerFeatures encode_texts(const std::vector<std::string>& texts, const ViewNeeds& needs) const override;
  TowerFeatures classes(const TowerFeatures& prompts, std::int64_t per_class) const override;
  std::vector<std::string> token_texts(const std::vector<std::int64_t>& ids) const override;
  at::Tensor similarity(const TowerFeatures& images, const TowerFeatures& texts) const override;
  bool compares_by_cosine() const override { return true; }
  TowerFeatures compact(const TowerFeatures& features) const override;
  const Tokenizer* tokenizer() const override { return tokenizer_.get(); }
  std::int64_t token_space() const override;
  at::Tensor token_activations(const TowerFeatures& images, const std::vector<std::int64_t>& ids) const override;
  at::Tensor relevance(const at::Tensor& pixels, const TowerFeatures& texts) const override;
  /// Counts the texts that exceed the tokenizer's context, each different text once. encode_texts() does so; call this method for texts
  /// that another process embeds.
  void count_cut_texts(const std::vector<std::string>& texts) const;
  /// Returns the number of texts that were counted since the last call of this method, and forgets them.
  std::int64_t take_cut_texts() const;
  /// Logs a warning if texts that exceed the tokenizer's context were counted since the last call of this method or of take_cut_texts().
  void tell_of_cut_texts() const;

 private:
  std::shared_ptr<DualEncoder> model_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::int64_t texts_at_a_time_;
  at::ScalarType precision_;
  std::unique_ptr<PackedWeights> packed_;  // null: none
  bool was_training_;
  mutable std::unordered_set<std::uint64_t> counted_texts_;  // fingerprints of the texts so far
  mutable std::int64_t cut_texts_ = 0, cut_tokens_ = 0;  // how many of these texts were cut, and the tokens they lost
};

/// Concatenates the features of one or more consecutive batches. Compact features stay compact.
TowerFeatures joined(const std::vector<TowerFeatures>& batches);

}  // namespace tessera
