#pragma once

#include <cstdint>
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

/// Embeddings by a fingerprint of what they are of. Thread-safe.
class EmbeddingTable {
 public:
  bool contains(std::uint64_t of) const;
  std::int64_t size() const;
  /// rows [B, D] of a floating dtype on the CPU, one of each of `of`. Throws c10::Error for another width or dtype than that
  /// of the rows that are there.
  void add(const std::vector<std::uint64_t>& of, const at::Tensor& rows);
  /// Those of `of`, which must all be there: [B, D].
  at::Tensor rows(const std::vector<std::uint64_t>& of) const;

  /// Fills it from a file of save() with the same `key`. Without such a file nothing happens; one that is damaged or of another
  /// model is passed over with a warning.
  void load(const std::string& path, const std::string& key);
  /// Writes what is there, if there is more than was loaded or saved before; true if so.
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

/// What a model makes of pictures and texts, computed once: tasks of a suite share it in memory, and evaluations through a
/// folder. A picture is known by its own bytes, so that data may change or move.
class FeatureStore {
 public:
  /// `model` tells all that embeddings depend on (weights, settings, tokenizer, chosen slots, device); an empty folder: memory
  /// alone. Throws UserError if the folder cannot be made.
  FeatureStore(std::string folder, std::string model);

  /// Those of a source's pictures: a file for each data set.
  EmbeddingTable& pictures(const Source& source);
  EmbeddingTable& texts();
  /// Writes what is new into the folder, if there is one.
  void save();
  /// FOLDER/MODEL, or empty.
  const std::string& folder() const { return folder_; }

 private:
  EmbeddingTable& table(const std::string& name);

  std::string folder_, model_;
  std::map<std::string, std::unique_ptr<EmbeddingTable>> tables_;  // by the file's name
};

/// Sees a model as it is and keeps the embeddings of texts; Pass keeps those of pictures. For models that compare by cosine
/// (Embedder::compares_by_cosine) and whose embeddings are dense: no token_space().
class CachedEmbedder final : public EmbedderView {
 public:
  /// Both outlive it.
  CachedEmbedder(const Embedder& model, FeatureStore& store) : EmbedderView(model), store_(store) {}
  TowerFeatures texts(const std::vector<std::string>& texts, const ViewNeeds& needs) const override;
  FeatureStore* feature_store() const override { return &store_; }

 private:
  FeatureStore& store_;
};

}  // namespace tessera
