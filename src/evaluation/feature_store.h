#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include <tessera/data/source.h>
#include <tessera/evaluation/embedder_view.h>

namespace tessera {

/// A table of embeddings. The key of an embedding is the fingerprint of its image or text. Thread-safe.
class EmbeddingTable {
 public:
  bool contains(std::uint64_t of) const;
  std::int64_t size() const;
  /// Adds one row for each fingerprint in `of`. rows: floating-point [B, D] on the CPU. Throws c10::Error if the width or type of `rows`
  /// differs from that of the rows already in the table.
  void add(const std::vector<std::uint64_t>& of, const at::Tensor& rows);
  /// Returns the rows [B, D] of these fingerprints, all of which must be in the table.
  at::Tensor rows(const std::vector<std::uint64_t>& of) const;
  /// As the other rows(), but first adds the rows that are missing: compute() takes their indices in `of`, and returns the rows, or an
  /// undefined tensor, which is then returned, too.
  at::Tensor rows(const std::vector<std::uint64_t>& of, const std::function<at::Tensor(const std::vector<std::size_t>& missing)>& compute);

  /// Fills the table from a file that save() wrote with the same `key`. Does nothing if the file does not exist. If the file is damaged or
  /// has another model's key, ignores the file and logs a warning.
  void load(const std::string& path, const std::string& key);
  /// Writes the table if it has grown since it was last loaded or saved. Returns true if it wrote the file.
  bool save(const std::string& path, const std::string& key);

 private:
  struct Place {
    std::size_t chunk;
    std::int64_t row;
  };
  void insert(const std::vector<std::uint64_t>& of, const at::Tensor& rows);

  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, Place> places_;
  std::vector<at::Tensor> chunks_;
  std::int64_t saved_ = 0;
};

/// A cache of a model's embeddings of images and texts. The tasks of a suite share it in memory, and evaluations share it through a folder.
/// Images are identified by their bytes, so the cache stays valid if a data set changes or moves.
class FeatureStore {
 public:
  /// `model` identifies everything that embeddings depend on (weights, settings, tokenizer, chosen slots, device). If `folder` is
  /// empty, the cache is only in memory. Throws UserError if the folder cannot be created.
  FeatureStore(std::string folder, std::string model);

  /// Returns the embeddings of a source's images. Each data set has its own file.
  EmbeddingTable& images(const Source& source);
  EmbeddingTable& texts();
  /// Writes new embeddings into the folder, if there is one.
  void save();
  /// Returns FOLDER/MODEL; empty if the cache is only in memory.
  const std::string& folder() const { return folder_; }

 private:
  EmbeddingTable& table(const std::string& name);

  std::string folder_, model_;
  std::map<std::string, std::unique_ptr<EmbeddingTable>> tables_;  // key: the file's name
};

/// Caches the embeddings of texts; the class Pass caches those of images. CachedEmbedder is for models that compare by cosine
/// (Embedder::compares_by_cosine) and have dense embeddings (no token_space()).
class CachedEmbedder final : public EmbedderView {
 public:
  /// `model` and `store` must outlive this object.
  CachedEmbedder(const Embedder& model, FeatureStore& store) : EmbedderView(model), store_(store) {}
  TowerFeatures encode_texts(const std::vector<std::string>& texts, const ViewNeeds& needs) const override;
  FeatureStore* feature_store() const override { return &store_; }

 private:
  FeatureStore& store_;
};

}  // namespace tessera
