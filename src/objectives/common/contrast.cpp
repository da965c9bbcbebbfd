#include "src/objectives/common/contrast.h"

#include <limits>

#include <ATen/ATen.h>

#include "src/objectives/common/tiled_info_nce.h"
#include <tessera/distributed/collectives.h>
#include <tessera/ops/numeric.h>

namespace tessera {
namespace {

constexpr double kNoExponential = -std::numeric_limits<double>::infinity();

// Cross-entropies are taken of logits relative to the right pair's, log sum exp(s (A_ij - A_ii)): equal in value, and
// the gradient of the scale does not cancel between large numbers. The right pair of row b is at column offset + b.
// Logits where `left_out` is true (undefined: nowhere) add nothing; the right pair's are never among them.
at::Tensor mean_log_sum(const at::Tensor& logits, const at::Tensor& left_out, std::int64_t dim) {
  return (left_out.defined() ? logits.masked_fill(left_out, kNoExponential) : logits).logsumexp(dim).mean();
}

at::Tensor row_loss(const at::Tensor& similarity, const at::Tensor& scale, std::int64_t offset,
                    const at::Tensor& left_out) {
  return mean_log_sum((similarity - similarity.diagonal(offset).unsqueeze(1)) * scale, left_out, 1);
}

// left_out: of the rows, that is transposed.
at::Tensor column_loss(const at::Tensor& similarity, const at::Tensor& scale, std::int64_t offset,
                       const at::Tensor& left_out) {
  return mean_log_sum((similarity - similarity.diagonal(-offset)) * scale, left_out.defined() ? left_out.t() : left_out,
                      0);
}

Contrast both(const at::Tensor& i2t, const at::Tensor& t2i) {
  return {(i2t + t2i) / 2, i2t, t2i};
}

}  // namespace

Contrast info_nce(const at::Tensor& i2t, const at::Tensor& t2i, const at::Tensor& scale, const ProcessGroup& group,
                  const DuplicatePairs& shared) {
  const std::int64_t offset = group.rank() * i2t.size(0);
  const at::Tensor left_out = shared.among(offset, i2t.size(0), 0, i2t.size(1));  // [B, C]
  return both(row_loss(i2t, scale, offset, left_out),
              column_loss(rows_to_columns(t2i, group), scale, offset, left_out));
}

Contrast global_contrast(const at::Tensor& image_global, const at::Tensor& text_global, const at::Tensor& scale,
                         const ContrastOptions& options, const ProcessGroup& group, const DuplicatePairs& shared) {
  at::Tensor image = unit_rows(image_global);  // [B, D]
  at::Tensor text = unit_rows(text_global);
  if (!group.alone() && !options.own_rows) {
    image = gather_rows(image, group);
    text = gather_rows(text, group);
  }
  const ProcessGroup& partners = options.own_rows ? group : ProcessGroup();
  if (options.chunk) {
    const auto [i2t, t2i] = tiled_info_nce(image, text, scale, *options.chunk, partners, shared);
    return both(i2t, t2i);
  }
  if (partners.alone()) {
    const at::Tensor cosines = at::matmul(image, text.t());  // [B, B]
    return info_nce(cosines, cosines, scale, {}, shared);
  }
  const std::int64_t offset = partners.rank() * image.size(0);
  const at::Tensor images = gather_rows(image, partners), texts = gather_rows(text, partners);  // [C, D]
  const at::Tensor left_out = shared.among(offset, image.size(0), 0, texts.size(0));
  return both(row_loss(at::matmul(image, texts.t()), scale, offset, left_out),
              column_loss(at::matmul(images, text.t()), scale, offset, left_out));
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
