#pragma once

#include <string>
#include <vector>

#include <tessera/evaluation/embedder.h>
#include <tessera/evaluation/inference.h>
#include <tessera/index/sparse_vectors.h>

namespace tessera::tools {

/// A model that encodes images and texts as weights of its vocabulary's tokens (STAIR).
class SparseModel {
 public:
  /// Throws UserError if there is no such model, or its embeddings are not over a vocabulary.
  explicit SparseModel(const std::string& path);

  /// Returns one row per image, in order; the ids are the paths. Throws UserError naming a file that is not an image.
  index::SparseVectors encode_images(const std::vector<std::string>& paths) const;
  /// Returns one row per text, in order, with ids 0, 1, ...; `text_encoder_free`: by their tokens only, without the text tower.
  index::SparseVectors encode_texts(const std::vector<std::string>& texts, bool text_encoder_free) const;

 private:
  InferenceModel loaded_;
  DualEncoderEmbedder embedder_;
};

}  // namespace tessera::tools
