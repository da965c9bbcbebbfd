#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "src/index/index.h"
#include <tessera/data/source.h>
#include <tessera/evaluation/embedder.h>

namespace tessera::serving {

/// Embedded images that can be searched: dense embeddings by their cosine with the query, exactly, and sparse ones (STAIR) with the index.
/// Thread-safe.
class Gallery {
 public:
  struct Hit {
    std::int64_t item = 0;
    double score = 0;  // the cosine, or, if the embeddings are sparse, its approximation by the index
  };

  /// Embeds the images of a source with `threads` decoding threads, and shows the progress. Unreadable images are skipped with a warning.
  /// Throws UserError if the source is a stream or has no usable image.
  static std::unique_ptr<Gallery> of_source(std::shared_ptr<const Source> source, const Embedder& embedder, std::int64_t batch_size,
                                            std::int64_t threads);
  /// Reads the image embeddings that tessera-embed wrote to `path`: dense (--out FILE.safetensors), sparse (--sparse), or a folder of
  /// tessera-index. `images` is the source whose images were embedded; it may be null, and then the results have no images. Throws
  /// UserError if the file has no image embeddings, or if they do not fit the model or the source.
  static std::unique_ptr<Gallery> of_file(const std::string& path, const Embedder& embedder, std::int64_t embed_dim,
                                          std::shared_ptr<const Source> images);

  std::int64_t size() const { return std::ssize(keys_); }
  /// Returns the key of an item.
  const std::string& key(std::int64_t item) const { return keys_.at(static_cast<std::size_t>(item)); }
  bool has_images() const { return source_ != nullptr; }
  /// Returns the decoded image of an item. Throws SampleError if it cannot be read any more.
  Image image(std::int64_t item, const Decoding& decoding) const;
  /// Returns the `k` items nearest to an embedding [D], the nearest first; at ties the earlier item comes first.
  std::vector<Hit> search(const at::Tensor& query, std::int64_t k) const;

 private:
  void use_sparse(const index::SparseVectors& vectors);

  std::vector<std::string> keys_;
  std::vector<std::int64_t> samples_;  // the sample of each item
  std::shared_ptr<const IndexedSource> source_;
  at::Tensor rows_;                     // [N, D], of length 1; undefined if the embeddings are sparse
  std::optional<index::Index> index_;
};

}  // namespace tessera::serving
