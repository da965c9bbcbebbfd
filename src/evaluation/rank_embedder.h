#pragma once

#include <string>
#include <vector>

#include <tessera/distributed/process_group.h>
#include <tessera/evaluation/embedder_view.h>
#include <tessera/models/checkpoint_options.h>

namespace tessera {

/// Rank 0's handle to the other ranks of an evaluation, which embed images and texts for rank 0. The other ranks load the models that
/// load() names, and serve until this object is destroyed. Rank 0 creates the object when the program starts. With a single rank the object
/// does nothing.
class EmbeddingRanks {
 public:
  explicit EmbeddingRanks(ProcessGroup group) : group_(std::move(group)) {}
  ~EmbeddingRanks();
  EmbeddingRanks(const EmbeddingRanks&) = delete;
  EmbeddingRanks& operator=(const EmbeddingRanks&) = delete;

  int size() const { return group_.size(); }
  const ProcessGroup& group() const { return group_; }
  /// Makes all other ranks load this model with load_for_inference(). If a rank cannot load it, throws UserError naming the rank.
  void load(const std::string& checkpoint, const CheckpointOptions& options) const;

 private:
  ProcessGroup group_;
};

/// Divides the work of embedding images and texts evenly among the ranks. Rank r embeds the r-th part of a batch. The results are the same
/// as with one process. If `needs` asks for more text features than the embeddings, the calling rank computes all text features alone.
class RankEmbedder final : public EmbedderView {
 public:
  /// `model` must be the model that the ranks loaded last. Both arguments must outlive this object.
  RankEmbedder(const Embedder& model, const EmbeddingRanks& ranks) : EmbedderView(model), ranks_(ranks) {}
  using EmbedderView::encode_images;
  TowerFeatures encode_images(const TowerInput& images, const ViewNeeds& needs) const override;
  TowerFeatures encode_texts(const std::vector<std::string>& texts, const ViewNeeds& needs) const override;

 private:
  const EmbeddingRanks& ranks_;
};

/// Runs on every rank except rank 0: embeds what rank 0 sends, until rank 0 ends. `device` is passed to load_for_inference().
void serve_embeddings(const ProcessGroup& group, const std::string& device);

}  // namespace tessera
