#include "src/evaluation/metrics/cosine.h"
#include "src/evaluation/metrics/zero_shot.h"

namespace tessera::metrics {

at::Tensor class_embeddings(const at::Tensor& prompt_features, const at::Tensor& prompt_class,
                            std::int64_t num_classes) {
  TORCH_CHECK(prompt_features.dim() == 2, "class_embeddings: prompt_features must be [M, D], got ",
              prompt_features.sizes());
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

ZeroShotMeter::ZeroShotMeter(std::int64_t num_classes, std::vector<std::int64_t> topk)
    : num_classes_(num_classes), topk_(std::move(topk)) {
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
  const at::Tensor scores = at::nan_to_num(similarity, -INFINITY);
  const at::Tensor label = truth.clamp_min(0).unsqueeze(1);
  const at::Tensor own = scores.gather(1, label);
  const at::Tensor index = at::arange(num_classes_, truth.options()).unsqueeze(0);
  const at::Tensor before = at::logical_or(scores.gt(own), at::logical_and(scores.eq(own), index.lt(label))).sum(1);
  // A feature with NaN values matches no class.
  const at::Tensor place = at::where(own.squeeze(1).eq(-INFINITY), num_classes_, before);
  predictions_.push_back(scores.argmax(1));
  ranks_.push_back(at::where(truth.lt(0), -1, place));
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

ZeroShotScores zero_shot_classification(const at::Tensor& image_features, const at::Tensor& labels,
                                        const at::Tensor& prompt_features, const at::Tensor& prompt_class,
                                        std::int64_t num_classes, const std::vector<std::int64_t>& topk) {
  TORCH_CHECK(
      image_features.dim() == 2 && prompt_features.dim() == 2 && image_features.size(1) == prompt_features.size(1),
      "zero_shot_classification: features must be [N, D] and [M, D], got ", image_features.sizes(), " and ",
      prompt_features.sizes());
  TORCH_CHECK(labels.dim() == 1 && labels.size(0) == image_features.size(0),
              "zero_shot_classification: labels must be [", image_features.size(0), "], got ", labels.sizes());
  ZeroShotMeter meter(num_classes, topk);
  const CosinesWith cosines_with(class_embeddings(prompt_features, prompt_class, num_classes));
  for_tiles(image_features.size(0), num_classes, [&](std::int64_t begin, std::int64_t end) {
    meter.add(cosines_with(image_features.slice(0, begin, end)), labels.slice(0, begin, end));
  });
  return meter.scores();
}

}  // namespace tessera::metrics
