#pragma once

#include <string>
#include <vector>

#include <tessera/evaluation/embedder.h>
#include <tessera/evaluation/inference.h>
#include <tessera/index/sparse_vectors.h>

namespace tessera::tools {

/// A model that encodes pictures and texts as weights of its vocabulary's tokens (STAIR).
class SparseModel {
 public:
  /// Throws UserError: no such model, or one with other embeddings.
  explicit SparseModel(const std::string& path);

  /// Rows in the pictures' order; their ids are the paths. Throws UserError naming a file that is no picture.
  index::SparseVectors encode_images(const std::vector<std::string>& paths) const;
  /// Rows in the texts' order, with ids 0, 1, ...; `text_encoder_free`: by their tokens alone, without the text tower.
  index::SparseVectors encode_texts(const std::vector<std::string>& texts, bool text_encoder_free) const;

 private:
  InferenceModel loaded_;
  DualEncoderEmbedder embedder_;
};

}  // namespace tessera::tools
