#include "src/objectives/pairs/contrast.h"

#include <limits>

#include <ATen/ATen.h>

#include <tessera/distributed/collectives.h>
#include <tessera/ops/numeric.h>

namespace tessera {
namespace {

constexpr double kNoExponential = -std::numeric_limits<double>::infinity();

// Sums the cross-entropies of the rows (dim = 1) or columns (dim = 0) of `similarity`. The matching entries are on the diagonal number
// `offset`. The logits are relative to the logit of the matching pair, so that the loss is log sum exp(s (A_ij - A_ii)). Plain logits would
// give the same value, but the gradient of the scale would then be a difference of large numbers. Entries are ignored where `left_out` is
// true; it must be false for the matching pair. `further` is the logarithm of an additional term in each softmax's denominator. `left_out`
// and `further` may be undefined.
at::Tensor cross_entropy(const at::Tensor& similarity, const at::Tensor& scale, std::int64_t offset,
                         const at::Tensor& left_out, double smoothing, std::int64_t dim, const at::Tensor& further) {
  const at::Tensor logits = (similarity - similarity.diagonal(offset).unsqueeze(dim)) * scale;
  const auto counted = [&](double nothing) {
    return left_out.defined() ? logits.masked_fill(left_out, nothing) : logits;
  };
  at::Tensor loss = counted(kNoExponential).logsumexp(dim);
  if (further.defined()) loss = at::logaddexp(loss, further);
  if (smoothing == 0) return loss.sum();
  at::Tensor negatives = at::full({}, logits.size(dim) - 1, logits.options().dtype(at::kLong));
  if (left_out.defined()) negatives = negatives - left_out.sum(dim);
  // The relative logit of the matching pair itself is 0.
  return (loss - counted(0.0).sum(dim) * smoothing / negatives.clamp_min(1)).sum();
}

// Returns the entries of this rank's rows [B, C] that are left out, without the pairs themselves; undefined if there are none.
at::Tensor left_out_of(const PairRelation& relation, std::int64_t batch, const ProcessGroup& group) {
  const std::int64_t first = group.rank() * batch, all = relation.images();
  at::Tensor out = relation.tile(first, batch, 0, all, /*slot=*/0).left_out;
  if (!out.defined()) return out;
  out = out.expand({batch, all}).clone();
  out.diagonal(first).fill_(false);
  return out;
}

// Computes InfoNCE of the rows `i2t` [B, C] and the columns `t2i` [C, B].
Contrast composed_info_nce(const at::Tensor& i2t, const at::Tensor& t2i, const at::Tensor& scale,
                           const ProcessGroup& group, const PairRelation& relation, const at::Tensor& further) {
  const std::int64_t batch = i2t.size(0), offset = group.rank() * batch;
  const at::Tensor left_out = left_out_of(relation, batch, group);  // [B, C]
  const at::Tensor turned =
      left_out.defined() ? left_out.t() : left_out;  // for columns, because the relation is symmetric
  const at::Tensor rows = cross_entropy(i2t, scale, offset, left_out, relation.smoothing, 1, further);
  const at::Tensor columns = cross_entropy(t2i, scale, -offset, turned, relation.smoothing, 0, {});
  return Contrast::mean_of(relation.mean_of(rows, group), relation.mean_of(columns, group));
}

}  // namespace

Contrast info_nce(const at::Tensor& i2t, const at::Tensor& t2i, const at::Tensor& scale, const ProcessGroup& group,
                  const PairRelation& relation) {
  return composed_info_nce(i2t, rows_to_columns(t2i, group), scale, group, relation, {});
}

Contrast global_contrast(const at::Tensor& image_global, const at::Tensor& text_global, const at::Tensor& scale,
                         const ContrastOptions& options, const ProcessGroup& group, const PairRelation& relation,
                         const NegativeTexts& negatives) {
  at::Tensor image = unit_rows(image_global);  // [B, D]
  at::Tensor text = unit_rows(text_global);
  if (!group.alone() && !options.own_rows) {
    image = gather_rows(image, group);
    text = gather_rows(text, group);
  }
  const ProcessGroup& partners = options.own_rows ? group : ProcessGroup();
  at::Tensor further;  // [B], the logarithm of an additional term in the denominator of each image's softmax
  if (negatives.defined())
    further = negative_log_sums(image, (image * text).sum(1), scale,
                                options.own_rows ? negatives : negatives.gathered(group), options.chunk, partners);
  if (options.chunk)
    return tiled_info_nce({image, text.unsqueeze(1), relation, options.chunk, partners}, scale, Denominator::slot,
                          further);
  const at::Tensor i2t = at::matmul(image, gather_rows(text, partners).t());
  const at::Tensor t2i = partners.alone() ? i2t : at::matmul(gather_rows(image, partners), text.t());
  return composed_info_nce(i2t, t2i, scale, partners, relation, further);
}

}  // namespace tessera
