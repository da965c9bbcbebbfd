#include <ATen/ATen.h>

#include "src/evaluation/metrics/conditioned_similarity.h"
#include "src/evaluation/metrics/cosine.h"

namespace tessera::metrics {
namespace {

// Subtracted from the cosines of texts that are not candidates. The results are below every possible cosine.
constexpr double kBelowCandidates = 4;

at::Tensor exact_on_cpu(const at::Tensor& tensor) {
  return tensor.to(at::kCPU, at::kDouble);
}

/// Returns a copy of `values` in which each entry is replaced by the value of the first entry with the same id. Both tensors are [k].
at::Tensor of_first_equal(const at::Tensor& values, const at::Tensor& ids) {
  const at::Tensor first = ids.unsqueeze(1).eq(ids.unsqueeze(0)).to(at::kByte).argmax(1);
  return values.index_select(0, first);
}

}  // namespace

ConditionedSimilarity::Distinct ConditionedSimilarity::distinct_rows(const at::Tensor& texts) {
  TORCH_CHECK(texts.dim() == 2 && texts.size(0) > 0, "conditioned similarity: texts must be [M, D], got ", texts.sizes());
  const auto [rows, place, counts] = at::unique_dim(texts, 0, /*sorted=*/true, /*return_inverse=*/true);
  return {rows, place};
}

ConditionedSimilarity::ConditionedSimilarity(TextConditionedPool& pool, const at::Tensor& texts)
    : texts_(texts.detach().cpu()), distinct_(distinct_rows(texts_)), scores_(pool, distinct_.rows) {}

at::Tensor ConditionedSimilarity::of_all(const at::Tensor& distinct) const {
  return exact_on_cpu(distinct).index_select(-1, distinct_.place);
}

at::Tensor ConditionedSimilarity::global(const at::Tensor& image_global) const {
  return CosinesWith(texts_)(image_global.detach().cpu());
}

at::Tensor ConditionedSimilarity::exact(const at::Tensor& image_tokens) const {
  return of_all(scores_.similarity(image_tokens));
}

at::Tensor ConditionedSimilarity::among_nearest(const at::Tensor& image_global, const at::Tensor& image_tokens, std::int64_t k) const {
  at::Tensor out = global(image_global);
  const at::Tensor candidates = best_first(out, k);  // [N, k]
  const at::Tensor distinct = distinct_.place.index_select(0, candidates.flatten()).view_as(candidates);
  const at::Tensor scores = exact_on_cpu(scores_.similarity(image_tokens, distinct));
  out.sub_(kBelowCandidates);
  for (std::int64_t n = 0; n < out.size(0); ++n)
    out[n].index_copy_(0, candidates[n], of_first_equal(scores[n], distinct[n]));
  return out;
}

at::Tensor ConditionedSimilarity::of_patches(const at::Tensor& image_tokens) const {
  return of_all(scores_.patch_similarity(image_tokens));
}

at::Tensor ConditionedSimilarity::attention(const at::Tensor& image_tokens) const {
  return of_all(scores_.attention(image_tokens));
}

}  // namespace tessera::metrics
