#pragma once

#include <string>
#include <vector>

#include <tessera/distributed/process_group.h>
#include <tessera/evaluation/embedder_view.h>

namespace tessera {

/// The other ranks of an evaluation, which embed for the first one: they load the models that they are told of, and serve
/// until this is gone. Made on rank 0 at the start; alone it does nothing.
class EmbeddingRanks {
 public:
  explicit EmbeddingRanks(ProcessGroup group) : group_(std::move(group)) {}
  ~EmbeddingRanks();
  EmbeddingRanks(const EmbeddingRanks&) = delete;
  EmbeddingRanks& operator=(const EmbeddingRanks&) = delete;

  int size() const { return group_.size(); }
  const ProcessGroup& group() const { return group_; }
  /// All others load this model, as load_for_inference() does. Throws UserError that names a rank which cannot.
  void load(const std::string& checkpoint, const std::string& architecture) const;

 private:
  ProcessGroup group_;
};

/// Sees a model, and embeds pictures and texts in equal shares on all ranks: rank r has the r-th part of a batch. What one
/// process gives, all give. Texts of which more than the embedding is asked for are embedded here alone.
class RankEmbedder final : public EmbedderView {
 public:
  /// `model` is the one that the ranks have loaded last. Both outlive it.
  RankEmbedder(const Embedder& model, const EmbeddingRanks& ranks) : EmbedderView(model), ranks_(ranks) {}
  using EmbedderView::images;
  TowerFeatures images(const TowerInput& pictures, const ViewNeeds& needs) const override;
  TowerFeatures texts(const std::vector<std::string>& texts, const ViewNeeds& needs) const override;

 private:
  const EmbeddingRanks& ranks_;
};

/// What the ranks other than the first do: embed as rank 0 tells them, until it ends. device: as for load_for_inference().
void serve_embeddings(const ProcessGroup& group, const std::string& device);

}  // namespace tessera
