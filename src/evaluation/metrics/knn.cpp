#include "src/evaluation/metrics/cosine.h"
#include "src/evaluation/metrics/knn.h"
#include "src/evaluation/metrics/retrieval.h"

namespace tessera::metrics {

KnnScores knn_classification(const at::Tensor& train_features, const at::Tensor& train_labels,
                             const at::Tensor& test_features, const at::Tensor& test_labels, std::int64_t num_classes,
                             std::int64_t k, double temperature) {
  TORCH_CHECK(train_features.dim() == 2 && train_labels.dim() == 1 && train_labels.size(0) == train_features.size(0),
              "knn_classification: training features and labels must be [N, D] and [N], got ", train_features.sizes(),
              " and ", train_labels.sizes());
  TORCH_CHECK(test_features.dim() == 2 && test_labels.dim() == 1 && test_labels.size(0) == test_features.size(0),
              "knn_classification: test features and labels must be [M, D] and [M], got ", test_features.sizes(),
              " and ", test_labels.sizes());
  TORCH_CHECK(train_labels.numel() > 0, "knn_classification: no training samples");
  TORCH_CHECK(train_labels.min().item<std::int64_t>() >= 0 && train_labels.max().item<std::int64_t>() < num_classes,
              "knn_classification: training labels must lie in 0..", num_classes - 1);
  TORCH_CHECK(k > 0 && temperature > 0, "knn_classification: k and temperature must be positive");
  KnnScores out;
  const auto [neighbors, cosines] = nearest_by_cosine(test_features, train_features, k);
  out.neighbors = neighbors;
  const at::Tensor labels =
      train_labels.to(neighbors.device()).index_select(0, neighbors.flatten()).view(neighbors.sizes());
  // exp(1 / temperature) overflows for temperatures below 1/700. Subtracting a common shift does not change the shares of the
  // votes.
  const at::Tensor shift = temperature < 1.0 / 500 ? cosines.amax(1, true) : at::zeros({1, 1}, cosines.options());
  const at::Tensor votes = at::zeros({cosines.size(0), num_classes}, cosines.options())
                               .scatter_add_(1, labels, ((cosines - shift) / temperature).exp());
  out.probabilities = votes / votes.sum(1, true);
  const std::int64_t places = std::min<std::int64_t>({5, neighbors.size(1), num_classes});
  const at::Tensor best = best_first(votes, places);
  out.prediction = best.select(1, 0).contiguous();
  const at::Tensor truth = test_labels.to(best.device(), at::kLong);
  const at::Tensor counted = truth.ge(0);
  out.in_top5 = best.eq(truth.unsqueeze(1)).any(1);
  const at::Tensor right = best.eq(truth.unsqueeze(1)).index({counted}).to(at::kDouble);  // [labeled samples, predictions], best first
  if (right.size(0) > 0) {
    out.top1 = right.select(1, 0).mean().item<double>();
    out.top5 = right.sum(1).mean().item<double>();
  }
  return out;
}

}  // namespace tessera::metrics
