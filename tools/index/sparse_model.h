#pragma once

#include <string>
#include <vector>

#include "src/index/sparse_vectors.h"
#include <tessera/evaluation/embedder.h>
#include <tessera/evaluation/inference.h>

namespace tessera::tools {

/// A model that encodes images and texts as weights for the tokens of its vocabulary (STAIR).
class SparseModel {
 public:
  /// Throws UserError if there is no model at `path`, or if the model's embeddings are not weights of vocabulary tokens.
  explicit SparseModel(const std::string& path);

  /// Returns one row per image, in order; the ids are the paths. Throws UserError naming a file that is not an image.
  index::SparseVectors encode_images(const std::vector<std::string>& paths) const;
  /// Returns one row per text, in order, with ids 0, 1, ... With `text_encoder_free`, texts are encoded without the text tower, with weight
  /// 1 for each of their tokens.
  index::SparseVectors encode_texts(const std::vector<std::string>& texts, bool text_encoder_free) const;

 private:
  InferenceModel loaded_;
  DualEncoderEmbedder embedder_;
};

}  // namespace tessera::tools
