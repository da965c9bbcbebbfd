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

/// Gives features of pictures and texts, and how similar they are: all that evaluation sees of a model. Features lie on
/// the CPU, floating ones as float32 or float64, without gradient; `global` is always among them.
class Embedder {
 public:
  virtual ~Embedder() = default;

  /// How a picture becomes the model's input.
  virtual const Preprocessing& preprocessing() const = 0;
  /// Rows and columns of the patches in TowerFeatures::dense. Throws UserError where they differ from picture to picture
  /// (TowerFeatures::grids has them then).
  virtual config::Size grid() const = 0;
  /// Features of one batch of pictures, as image_batch() makes it of uint8 [3, h, w]: what similarity() takes, and what `needs`
  /// asks for besides.
  virtual TowerFeatures images(const TowerInput& pictures, const ViewNeeds& needs) const = 0;
  /// The same of pixels, uint8 [B, 3, H, W].
  TowerFeatures images(const at::Tensor& pixels, const ViewNeeds& needs) const { return images(image_input(pixels), needs); }

  /// Whether the model takes texts at all; if not, texts() throws c10::Error.
  virtual bool takes_texts() const = 0;
  /// Features of any number of texts, likewise.
  virtual TowerFeatures texts(const std::vector<std::string>& texts, const ViewNeeds& needs) const = 0;
  /// Features of classes for similarity(), each made of its `per_class` prompts, which follow each other in `prompts`.
  /// Patches (TowerFeatures::dense of pictures) are compared with their `global` [C, D] by cosine. Where the prompts have
  /// slots, `slots` [C, L, V] are the classes' (metrics::class_slots).
  virtual TowerFeatures classes(const TowerFeatures& prompts, std::int64_t per_class) const = 0;
  /// What each token adds to a text, for people: a word begins with a space, a special token is empty. Their numbers
  /// where the words are not known.
  virtual std::vector<std::string> token_texts(const std::vector<std::int64_t>& ids) const;

  /// How similar pictures are to texts or classes, floating [N, M]; more is more similar.
  virtual at::Tensor similarity(const TowerFeatures& images, const TowerFeatures& texts) const = 0;
  /// Whether similarity() is the cosine of the `global` embeddings, so that many can be compared without it.
  virtual bool compares_by_cosine() const { return false; }
  /// Features of pictures, texts or classes as a task keeps many of them: similarity() takes them as it takes the
  /// originals, and nothing else need. A model whose embeddings are mostly zeros stores `global` as sparse rows.
  virtual TowerFeatures compact(const TowerFeatures& features) const { return features; }

  /// The model's tokenizer; null: it has none, or nobody knows it.
  virtual const Tokenizer* tokenizer() const { return nullptr; }
  /// Tokens of the vocabulary, where number k of a global embedding, of pictures and texts alike, is the weight of token
  /// k (both towers read out by token_projection, as STAIR's do): the embedding's width. 0: embeddings are something
  /// else.
  virtual std::int64_t token_space() const { return 0; }
  /// How active vocabulary tokens are at each patch, before maximum and logarithm: p(h_j) of STAIR (Chen et al. 2023,
  /// eq. 4). `images` are features with `tokens` [B, P, W]; returns [B, P, ids] float. Throws c10::Error where there is
  /// no token_space().
  virtual at::Tensor token_activations(const TowerFeatures& images, const std::vector<std::int64_t>& ids) const;
  /// Where in pictures the cosine of their global embeddings with texts comes from, by Grad-CAM (metrics::grad_cam) on what
  /// the encoder gives or, where the read-out looks at the class token alone, on what its last block sees. pixels uint8
  /// [B, 3, H, W], as many texts; returns [B, rows, columns] float, 0 and above. Throws UserError where the encoder has no map.
  virtual at::Tensor relevance(const at::Tensor& pixels, const TowerFeatures& texts) const;

  /// Where embeddings of pictures (`global`, with no further needs) are kept, by fingerprints of the pictures; null: nowhere.
  virtual FeatureStore* feature_store() const { return nullptr; }
};

/// Compares the global embeddings of a dual encoder by cosine, in double; a class is the mean of its prompts' unit
/// embeddings (Radford et al. 2021, 3.1.4). Embeddings in token_space() are compact as sparse rows. A system that
/// compares something else overrides what differs, compares_by_cosine() with similarity(). The model is in evaluation mode
/// for as long as the embedder lives.
class DualEncoderEmbedder : public Embedder {
 public:
  /// `tokenizer` may be null where the model has no text tower. So many texts are encoded at a time.
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

/// The features of consecutive batches as those of one; at least one batch. Compact ones stay compact.
TowerFeatures joined(const std::vector<TowerFeatures>& batches);

}  // namespace tessera
