#include "src/evaluation/metrics/cosine.h"
#include "src/evaluation/metrics/pairs.h"

namespace tessera::metrics {

PairScores category_accuracy(const at::Tensor& right, const at::Tensor& category, std::int64_t categories) {
  TORCH_CHECK(right.dim() == 1 && right.sizes() == category.sizes(),
              "category_accuracy: right and category must be [N], got ", right.sizes(), " and ", category.sizes());
  TORCH_CHECK(category.numel() == 0 ||
                  (category.min().item<std::int64_t>() >= 0 && category.max().item<std::int64_t>() < categories),
              "category_accuracy: category must lie in 0..", categories - 1);
  const at::Tensor group = category.to(right.device(), at::kLong);
  PairScores out;
  out.accuracy = right.numel() > 0 ? right.to(at::kDouble).mean().item<double>() : 0.0;
  out.category_count = at::bincount(group, {}, categories);
  const at::Tensor counts = out.category_count.to(at::kDouble);
  const at::Tensor hits = at::bincount(group, right.to(at::kDouble), categories).to(at::kDouble);
  out.category_accuracy = at::where(counts.gt(0), hits / counts.clamp_min(1), -1.0);
  out.mean_category_accuracy = mean_of_present(out.category_accuracy);
  return out;
}

WinogroundScores winoground(const at::Tensor& scores) {
  TORCH_CHECK(scores.dim() == 3 && scores.size(1) == 2 && scores.size(2) == 2,
              "winoground: scores must be [N, 2, 2], got ", scores.sizes());
  const auto score = [&](std::int64_t caption, std::int64_t image) {
    return scores.select(1, caption).select(1, image);
  };
  return {.text_correct = at::logical_and(score(0, 0).gt(score(1, 0)), score(1, 1).gt(score(0, 1))),
          .image_correct = at::logical_and(score(0, 0).gt(score(0, 1)), score(1, 1).gt(score(1, 0)))};
}

ParaphraseScores paraphrase(const at::Tensor& image_scores, const at::Tensor& text_scores) {
  const std::int64_t count = image_scores.size(0);
  TORCH_CHECK(image_scores.sizes() == at::IntArrayRef({count, 3}) && text_scores.sizes() == at::IntArrayRef({count, 3, 3}),
              "paraphrase: image_scores must be [N, 3] and text_scores [N, 3, 3], got ", image_scores.sizes(), " and ",
              text_scores.sizes());
  const auto image = [&](std::int64_t text) { return image_scores.select(1, text); };
  const auto texts = [&](std::int64_t a, std::int64_t b) { return text_scores.select(1, a).select(1, b); };
  return {at::logical_and(image(0).gt(image(2)), image(1).gt(image(2))),
          at::logical_and(texts(0, 1).gt(texts(0, 2)), texts(0, 1).gt(texts(1, 2)))};
}

at::Tensor all_right(const at::Tensor& right, const at::Tensor& group, std::int64_t groups) {
  TORCH_CHECK(right.dim() == 1 && right.sizes() == group.sizes(), "all_right: right and group must be [N], got ",
              right.sizes(), " and ", group.sizes());
  const at::Tensor wrong = group.masked_select(at::logical_and(right.logical_not(), group.ge(0)));
  return at::bincount(wrong, {}, groups).eq(0);
}

at::Tensor first_is_best(const at::Tensor& scores) {
  TORCH_CHECK(scores.dim() == 2 && scores.size(1) > 1, "first_is_best: scores must be [N, K], K > 1, got ", scores.sizes());
  return scores.narrow(1, 0, 1).gt(scores.narrow(1, 1, scores.size(1) - 1)).all(1);
}

}  // namespace tessera::metrics
