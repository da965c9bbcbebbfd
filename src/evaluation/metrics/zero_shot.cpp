#include "src/evaluation/metrics/cosine.h"
#include "src/evaluation/metrics/zero_shot.h"

namespace tessera::metrics {

at::Tensor class_embeddings(const at::Tensor& prompt_features, const at::Tensor& prompt_class, std::int64_t num_classes) {
  TORCH_CHECK(prompt_features.dim() == 2, "class_embeddings: prompt_features must be [M, D], got ", prompt_features.sizes());
  TORCH_CHECK(prompt_class.dim() == 1 && prompt_class.size(0) == prompt_features.size(0),
              "class_embeddings: prompt_class must be [", prompt_features.size(0), "], got ", prompt_class.sizes());
  const at::Tensor owner = prompt_class.to(prompt_features.device());
  TORCH_CHECK(
      owner.numel() == 0 || (owner.min().item<std::int64_t>() >= 0 && owner.max().item<std::int64_t>() < num_classes),
      "class_embeddings: prompt_class must lie in 0..", num_classes - 1);
  const at::Tensor unit = unit_rows(prompt_features);
  // Divides the sums by the counts. The later normalization makes this unnecessary in exact arithmetic, but without the division the result
  // would be rounded differently than the means in the definition.
  const at::Tensor sums = at::zeros({num_classes, unit.size(1)}, unit.options()).index_add_(0, owner, unit);
  const at::Tensor counts = at::bincount(owner, {}, num_classes).clamp_min(1).to(at::kDouble);
  return unit_rows(sums / counts.unsqueeze(1));
}

ZeroShotMeter::ZeroShotMeter(std::int64_t num_classes, std::vector<std::int64_t> topk) : num_classes_(num_classes), topk_(std::move(topk)) {
  TORCH_CHECK(num_classes > 0, "zero_shot_classification: num_classes must be positive");
}

void ZeroShotMeter::add(const at::Tensor& similarity, const at::Tensor& labels) {
  TORCH_CHECK(similarity.dim() == 2 && similarity.size(1) == num_classes_,
              "zero_shot_classification: similarity must be [B, ", num_classes_, "], got ", similarity.sizes());
  TORCH_CHECK(labels.dim() == 1 && labels.size(0) == similarity.size(0), "zero_shot_classification: labels must be [",
              similarity.size(0), "], got ", labels.sizes());
  const at::Tensor truth = labels.to(similarity.device(), at::kLong);
  TORCH_CHECK(truth.numel() == 0 || truth.max().item<std::int64_t>() < num_classes_,
              "zero_shot_classification: labels must lie below ", num_classes_);
  predictions_.push_back(at::nan_to_num(similarity, -INFINITY).argmax(1));
  ranks_.push_back(best_right_rank(similarity, truth, at::arange(num_classes_, truth.options())));
  labels_.push_back(truth);
}

ZeroShotScores ZeroShotMeter::scores() const {
  const auto all = [](const std::vector<at::Tensor>& batches) {
    return batches.empty() ? at::empty({0}, at::kLong) : at::cat(batches);
  };
  ZeroShotScores out;
  out.prediction = all(predictions_);
  out.rank = all(ranks_);
  const at::Tensor ranks = out.rank, labeled = ranks.ge(0);
  // If k exceeds the number of classes, every label is among the first k.
  out.topk = recall_at(ranks, topk_);
  const at::Tensor known = all(labels_).masked_select(labeled);
  const at::Tensor right = ranks.masked_select(labeled).eq(0).to(at::kDouble);
  const at::Tensor counts = at::bincount(known, {}, num_classes_).to(at::kDouble);
  const at::Tensor hits = at::bincount(known, right, num_classes_).to(at::kDouble);
  out.per_class = at::where(counts.gt(0), hits / counts.clamp_min(1), -1.0);
  out.mean_per_class = mean_of_present(out.per_class);
  return out;
}

double macro_f1(const at::Tensor& prediction, const at::Tensor& labels, std::int64_t num_classes) {
  const auto count = [&](const at::Tensor& of) { return at::bincount(of, {}, num_classes).to(at::kDouble); };
  const at::Tensor truth = count(labels), predicted = count(prediction), hits = count(labels.masked_select(labels.eq(prediction)));
  return (2 * hits / (truth + predicted)).masked_select(truth.gt(0)).mean().item<double>();
}

GroupShares group_shares(const at::Tensor& hits, const at::Tensor& groups) {
  GroupShares out;
  out.count = at::bincount(groups);
  out.share = at::bincount(groups, hits.to(at::kDouble)) / out.count;
  out.worst = at::nan_to_num(out.share, INFINITY).argmin().item<std::int64_t>();
  return out;
}

}  // namespace tessera::metrics
