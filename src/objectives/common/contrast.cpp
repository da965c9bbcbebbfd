#include "src/objectives/common/contrast.h"

#include <limits>

#include <ATen/ATen.h>

#include "src/objectives/common/tiled_info_nce.h"
#include <tessera/distributed/collectives.h>
#include <tessera/ops/numeric.h>

namespace tessera {
namespace {

constexpr double kNoExponential = -std::numeric_limits<double>::infinity();

// Returns cross-entropies along `dim`. The logits are relative to the logit of the matching pair, so that the loss is log sum exp(s (A_ij -
// A_ii)). Plain logits would give the same value, but the gradient of the scale would then be a difference of large numbers. Logits are
// ignored where `left_out` is true; it must be false for the matching pair. `further` is the logarithm of an additional term in each
// softmax's denominator. `left_out` and `further` may be undefined.
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& left_out, double smoothing, std::int64_t dim,
                         const at::Tensor& further = {}) {
  const auto counted = [&](double nothing) {
    return left_out.defined() ? logits.masked_fill(left_out, nothing) : logits;
  };
  at::Tensor loss = counted(kNoExponential).logsumexp(dim);
  if (further.defined()) loss = at::logaddexp(loss, further);
  if (smoothing == 0) return loss;
  at::Tensor negatives = at::full({}, logits.size(dim) - 1, logits.options().dtype(at::kLong));
  if (left_out.defined()) negatives = negatives - left_out.sum(dim);
  return loss - counted(0.0).sum(dim) * smoothing / negatives.clamp_min(1);  // the relative logit of the matching pair itself is 0
}

// Sums the cross-entropies of the rows. The matching entry of row b is in column offset + b.
at::Tensor row_loss(const at::Tensor& similarity, const at::Tensor& scale, std::int64_t offset,
                    const at::Tensor& left_out, double smoothing, const at::Tensor& further = {}) {
  return cross_entropy((similarity - similarity.diagonal(offset).unsqueeze(1)) * scale, left_out, smoothing, 1, further)
      .sum();
}

// Sums the cross-entropies of the columns of `similarity` [C, B]. `left_out` is [B, C], as for row_loss().
at::Tensor column_loss(const at::Tensor& similarity, const at::Tensor& scale, std::int64_t offset,
                       const at::Tensor& left_out, double smoothing) {
  return cross_entropy((similarity - similarity.diagonal(-offset)) * scale,
                       left_out.defined() ? left_out.t() : left_out, smoothing, 0)
      .sum();
}

Contrast both(const at::Tensor& i2t, const at::Tensor& t2i) {
  return {(i2t + t2i) / 2, i2t, t2i};
}

}  // namespace

Contrast info_nce(const at::Tensor& i2t, const at::Tensor& t2i, const at::Tensor& scale, const ProcessGroup& group,
                  const ContrastTargets& targets, const at::Tensor& further) {
  const std::int64_t batch = i2t.size(0), offset = group.rank() * batch;
  const at::Tensor left_out = targets.left_out(offset, batch, 0, i2t.size(1));  // [B, C]
  const at::Tensor rows = row_loss(i2t, scale, offset, left_out, targets.smoothing, further);
  const at::Tensor columns = column_loss(rows_to_columns(t2i, group), scale, offset, left_out, targets.smoothing);
  return both(targets.mean_of(rows, batch, group), targets.mean_of(columns, batch, group));
}

Contrast global_contrast(const at::Tensor& image_global, const at::Tensor& text_global, const at::Tensor& scale,
                         const ContrastOptions& options, const ProcessGroup& group, const ContrastTargets& targets,
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
  if (options.chunk) {
    const auto [i2t, t2i] = tiled_info_nce(image, text, scale, further, *options.chunk, partners, targets);
    return both(i2t, t2i);
  }
  if (partners.alone()) {
    const at::Tensor cosines = at::matmul(image, text.t());  // [B, B]
    return info_nce(cosines, cosines, scale, {}, targets, further);
  }
  const std::int64_t batch = image.size(0), offset = partners.rank() * batch;
  const at::Tensor images = gather_rows(image, partners), texts = gather_rows(text, partners);  // [C, D]
  const at::Tensor left_out = targets.left_out(offset, batch, 0, texts.size(0));
  const at::Tensor rows = row_loss(at::matmul(image, texts.t()), scale, offset, left_out, targets.smoothing, further);
  const at::Tensor columns = column_loss(at::matmul(images, text.t()), scale, offset, left_out, targets.smoothing);
  return both(targets.mean_of(rows, batch, partners), targets.mean_of(columns, batch, partners));
}

at::Tensor token_contrast(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& mask,
                          const at::Tensor& scale) {
  const at::Tensor products = at::matmul(queries, keys.mT());  // [B, N, N]
  const at::Tensor right = products.diagonal(0, 1, 2);         // [B, N]
  at::Tensor rows = (products - right.unsqueeze(2)) * scale;
  at::Tensor columns = (products - right.unsqueeze(1)) * scale;
  if (!mask.defined()) return (rows.logsumexp(2) + columns.logsumexp(1)) / 2;
  const double nothing = lowest(products.scalar_type());
  rows = rows.masked_fill(~mask.unsqueeze(1), nothing);
  columns = columns.masked_fill(~mask.unsqueeze(2), nothing);
  return ((rows.logsumexp(2) + columns.logsumexp(1)) / 2).masked_fill(~mask, 0.0);
}

}  // namespace tessera
