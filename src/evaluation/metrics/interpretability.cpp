#include "src/evaluation/metrics/cosine.h"
#include "src/evaluation/metrics/interpretability.h"

namespace tessera::metrics {

InterpretabilityScores interpretability_ranking(const at::Tensor& activations, const at::Tensor& labels,
                                                const at::Tensor& class_token_ids,
                                                const std::vector<std::int64_t>& topk) {
  TORCH_CHECK(activations.dim() == 2 && labels.dim() == 1 && labels.size(0) == activations.size(0),
              "interpretability_ranking: activations and labels must be [N, V] and [N], got ", activations.sizes(),
              " and ", labels.sizes());
  TORCH_CHECK(class_token_ids.dim() == 2, "interpretability_ranking: class_token_ids must be [C, S], got ",
              class_token_ids.sizes());
  const std::int64_t vocabulary = activations.size(1);
  const auto options = labels.options().device(activations.device()).dtype(at::kLong);
  const at::Tensor tokens = class_token_ids.to(options);
  const at::Tensor truth = labels.to(options);
  TORCH_CHECK(tokens.numel() == 0 || tokens.max().item<std::int64_t>() < vocabulary,
              "interpretability_ranking: class_token_ids must lie below ", vocabulary);
  TORCH_CHECK(truth.numel() == 0 || truth.max().item<std::int64_t>() < tokens.size(0),
              "interpretability_ranking: labels must lie below ", tokens.size(0));
  InterpretabilityScores out;
  out.rank = at::empty_like(truth);
  for_tiles(activations.size(0), vocabulary, [&](std::int64_t begin, std::int64_t end) {
    const at::Tensor values = at::nan_to_num(activations.slice(0, begin, end), -INFINITY, INFINITY, -INFINITY);
    const at::Tensor label = truth.slice(0, begin, end);
    const at::Tensor own = tokens.index_select(0, label.clamp_min(0));  // [T, S]
    const at::Tensor real = own.ge(0);
    at::Tensor rank = at::full_like(label, vocabulary + 1);
    if (own.size(1) > 0) {
      const at::Tensor best = at::where(real, values.gather(1, own.clamp_min(0)), -INFINITY).amax(1, true);
      // The count of values >= `best` includes `best` itself, so the count is the rank, counted from 1.
      rank = at::where(real.any(1), values.ge(best).sum(1), rank);
    }
    out.rank.slice(0, begin, end).copy_(at::where(label.lt(0), -1, rank));
  });
  const at::Tensor from_zero = at::where(out.rank.lt(0), -1, out.rank - 1);
  out.topk = recall_at(from_zero, topk);
  return out;
}

}  // namespace tessera::metrics
