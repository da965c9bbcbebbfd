#include "src/evaluation/metrics/cosine.h"
#include "src/evaluation/metrics/cosine_ranks.h"
#include "src/evaluation/metrics/retrieval.h"

namespace tessera::metrics {
namespace {

/// Returns the rank of each query's best correct candidate, or -1 if the query has none. A candidate is correct if it has the
/// same id as the query, and this id is not -1. `scores_of` returns the similarities of a range of queries with all candidates.
/// The ids are int64.
at::Tensor best_right_rank(const std::function<at::Tensor(RowRange)>& scores_of, const at::Tensor& query_id,
                           const at::Tensor& candidate_id) {
  const std::int64_t queries = query_id.size(0), count = candidate_id.size(0);
  at::Tensor ranks = at::full({queries}, -1, query_id.options());
  if (count == 0) return ranks;
  const at::Tensor index = at::arange(count, query_id.options()).unsqueeze(0);
  for_tiles(queries, count, [&](std::int64_t begin, std::int64_t end) {
    const at::Tensor scores = at::nan_to_num(scores_of({begin, end}), -INFINITY);
    const at::Tensor id = query_id.slice(0, begin, end).unsqueeze(1);
    const at::Tensor right = at::logical_and(candidate_id.unsqueeze(0).eq(id), id.ge(0));
    const at::Tensor best = at::where(right, scores, -INFINITY).amax(1, true);
    const at::Tensor at_best = at::logical_and(right, scores.eq(best));
    const at::Tensor first = at::where(at_best, index, count).amin(1, true);
    const at::Tensor before = at::logical_or(scores.gt(best), at::logical_and(scores.eq(best), index.lt(first))).sum(1);
    // If the scores of a query are NaN, its correct candidate ranks last, not first.
    const at::Tensor place = at::where(best.squeeze(1).eq(-INFINITY), count, before);
    ranks.slice(0, begin, end).copy_(at::where(right.any(1), place, -1));
  });
  return ranks;
}

void check_owner(const at::Tensor& owner, std::int64_t images) {
  TORCH_CHECK(owner.numel() == 0 || owner.max().item<std::int64_t>() < images,
              "retrieval_recall: text_image must lie below ", images);
}

}  // namespace

RetrievalScores retrieval_recall(const SimilarityTile& similarity, std::int64_t images, const at::Tensor& text_image,
                                 const std::vector<std::int64_t>& topk) {
  const at::Tensor owner = text_image.to(at::kLong);
  const std::int64_t texts = owner.size(0);
  check_owner(owner, images);
  const at::Tensor image = at::arange(images, owner.options());
  RetrievalScores out;
  out.image_to_text_rank = best_right_rank([&](RowRange rows) { return similarity(rows, {0, texts}); }, image, owner);
  out.text_to_image_rank = best_right_rank(
      [&](RowRange rows) {
        return similarity({0, images}, rows).t();
      },
      owner, image);
  out.image_to_text = recall_at(out.image_to_text_rank, topk);
  out.text_to_image = recall_at(out.text_to_image_rank, topk);
  return out;
}

RetrievalScores retrieval_recall(const at::Tensor& image_features, const at::Tensor& text_features,
                                 const at::Tensor& text_image, const std::vector<std::int64_t>& topk) {
  TORCH_CHECK(image_features.dim() == 2 && text_features.dim() == 2 && image_features.size(1) == text_features.size(1),
              "retrieval_recall: features must be [N, D] and [M, D], got ", image_features.sizes(), " and ",
              text_features.sizes());
  TORCH_CHECK(text_image.dim() == 1 && text_image.size(0) == text_features.size(0),
              "retrieval_recall: text_image must be [", text_features.size(0), "], got ", text_image.sizes());
  const at::Tensor owner = text_image.to(at::kCPU, at::kLong);
  check_owner(owner, image_features.size(0));
  const CosineRanks ranks = cosine_ranks(image_features.to(at::kCPU), text_features.to(at::kCPU), owner);
  return {.image_to_text = recall_at(ranks.image, topk),
          .text_to_image = recall_at(ranks.text, topk),
          .image_to_text_rank = ranks.image,
          .text_to_image_rank = ranks.text};
}

std::pair<at::Tensor, at::Tensor> nearest_by_cosine(const at::Tensor& queries, const at::Tensor& candidates,
                                                    std::int64_t k) {
  TORCH_CHECK(queries.dim() == 2 && candidates.dim() == 2 && queries.size(1) == candidates.size(1),
              "nearest_by_cosine: features must be [Q, D] and [M, D], got ", queries.sizes(), " and ",
              candidates.sizes());
  const CosinesWith cosines_with(candidates);
  const std::int64_t count = candidates.size(0);
  k = std::min(k, count);
  at::Tensor indices = at::empty({queries.size(0), k}, candidates.options().dtype(at::kLong));
  at::Tensor cosines = at::empty({queries.size(0), k}, candidates.options().dtype(at::kDouble));
  for_tiles(queries.size(0), count, [&](std::int64_t begin, std::int64_t end) {
    const at::Tensor scores = at::nan_to_num(cosines_with(queries.slice(0, begin, end)), -INFINITY);
    const at::Tensor best = best_first(scores, k);
    indices.slice(0, begin, end).copy_(best);
    cosines.slice(0, begin, end).copy_(scores.gather(1, best));
  });
  return {indices, cosines};
}

}  // namespace tessera::metrics
