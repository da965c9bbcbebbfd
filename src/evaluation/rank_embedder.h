#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/evaluation/rank_images.h"
#include "src/evaluation/source_order.h"
#include <tessera/config/registry.h>
#include <tessera/distributed/process_group.h>
#include <tessera/evaluation/embedder_view.h>
#include <tessera/evaluation/run_loss.h>
#include <tessera/models/checkpoint_options.h>

namespace tessera {

/// The data of tasks without a source of their own, for ranks that open them when they need them.
struct EvaluationData {
  std::optional<config::ModuleSettings> source, train;
  std::int64_t threads = 1;  // that decode images
};

/// Rank 0's handle to the other ranks of an evaluation, which embed images and texts for rank 0, until this object is destroyed. With a
/// single rank the object does nothing.
class EmbeddingRanks {
 public:
  explicit EmbeddingRanks(ProcessGroup group) : group_(std::move(group)) {}
  ~EmbeddingRanks();
  EmbeddingRanks(const EmbeddingRanks&) = delete;
  EmbeddingRanks& operator=(const EmbeddingRanks&) = delete;

  int size() const { return group_.size(); }
  const ProcessGroup& group() const { return group_; }
  /// Makes all other ranks load this model with load_for_inference(), for ranks that run serve_embeddings(group, device). If a rank cannot
  /// load it, throws UserError naming the rank.
  void load(const std::string& checkpoint, const CheckpointOptions& options, const EvaluationData& data = {}) const;

 private:
  ProcessGroup group_;
};

/// Divides the work of embedding images and texts evenly among the ranks. The results are the same as with one process. Rank r embeds the
/// r-th part of a batch: either of pixels that rank 0 sends, or of images that rank r has read. If `needs` asks for more text features than
/// the embeddings, the calling rank computes all text features alone.
class RankEmbedder final : public EmbedderView {
 public:
  /// `model` must be the model that the ranks have, too. Both references must outlive this object. `threads` decode images. `shares_loss`
  /// tells whether the ranks' contexts have the loss of the run.
  RankEmbedder(const Embedder& model, const EmbeddingRanks& ranks, std::int64_t threads = 1, bool shares_loss = false)
      : EmbedderView(model), ranks_(ranks), shares_loss_(shares_loss), images_(ranks.group(), threads) {}
  using EmbedderView::encode_images;
  TowerFeatures encode_images(const TowerInput& images, const ViewNeeds& needs) const override;
  TowerFeatures encode_texts(const std::vector<std::string>& texts, const ViewNeeds& needs) const override;

  /// Returns the number of images that all ranks embed at a time if each of them embeds up to `of_rank`. The number is bounded, because
  /// rank 0 holds their features, and for some tasks their pixels.
  std::int64_t batch_size(std::int64_t of_rank) const { return std::min(of_rank * ranks_.size(), std::max<std::int64_t>(of_rank, 2048)); }
  /// Returns whether there are other ranks that can read images.
  bool reads_images() const { return ranks_.size() > 1; }
  /// Makes all ranks read the images of the samples `now` of a source and begin to read those of `next` (RankImages::read). `source` was
  /// opened with `order`.
  std::vector<ImageShare::Image> read_images(const SourceOrder& order, const std::shared_ptr<const Source>& source,
                                             const std::vector<std::int64_t>& now, const std::vector<std::int64_t>& next,
                                             bool collect) const;
  /// Returns an input without pixels that stands for images of the batch that was read last. encode_images() makes each rank embed those
  /// that it has read. No other embedder can embed this input, but one that forwards it to this one.
  TowerInput images_read(const std::vector<std::int64_t>& indices) const;
  bool shares_loss() const { return shares_loss_; }
  /// Makes all ranks measure `loss` on batches of the data that `order` names, and returns the result (RunLoss::measure). Only if
  /// shares_loss().
  TaskResult measure_loss(const RunLoss& loss, const SourceOrder& order, LossBatches batches) const;

 private:
  const EmbeddingRanks& ranks_;
  bool shares_loss_;
  mutable RankImages images_;
  mutable std::vector<std::int64_t> wanted_;  // the samples that the last result of images_read() stands for
};

/// Runs on every rank except rank 0: embeds what rank 0 wants, until rank 0 destroys its EmbeddingRanks. The data of tasks without a source
/// of their own, and the number of threads, come from `context`.
void serve_embeddings(const ProcessGroup& group, const Embedder& model, const EvaluationContext& context);
/// Does the same with the models that rank 0 names. `device` is passed to load_for_inference().
void serve_embeddings(const ProcessGroup& group, const std::string& device);

}  // namespace tessera
