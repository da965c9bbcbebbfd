#include "src/ops/max_similarity_tiles.h"

#include <limits>

#include <ATen/ATen.h>

namespace tessera {
namespace {

constexpr double kNoSimilarity = -std::numeric_limits<double>::infinity();

// Returns, for each row, 1 / (number of kept entries), [rows, 1].
at::Tensor share(const at::Tensor& keep, at::ScalarType dtype) {
  return keep.sum(1, /*keepdim=*/true).clamp_min(1).to(dtype).reciprocal();
}

// The backward pass of out[b, c] = sum over kept n of x[b, n] . y[c, index[b, c, n]]. `weight` is the gradient with respect to `out`.
// add_to() computes:
//   dx[b, n] += weight[b, c] y[c, index[b, c, n]]
//   dy[c, index[b, c, n]] += weight[b, c] x[b, n]
struct MaxGradient {
  at::Tensor x;       // [B, N, D], 0 where not kept
  at::Tensor y;       // [C, M, D]
  at::Tensor index;   // [B, C, N] int16, in [0, M)
  at::Tensor weight;  // [B, C]
  at::Tensor keep;    // [B, N] bool

  void add_to(at::Tensor& dx, at::Tensor& dy) const {
    const at::Tensor kept = keep.to(x.scalar_type());
    for (std::int64_t c = 0; c < y.size(0); ++c) {
      const at::Tensor rows = index.select(1, c).reshape(-1).to(at::kLong);              // [B*N]
      const at::Tensor scale = (weight.select(1, c).unsqueeze(1) * kept).unsqueeze(-1);  // [B, N, 1]
      dx.add_(y[c].index_select(0, rows).view_as(x) * scale);
      at::Tensor block = dy[c];
      block.index_add_(0, rows, (x * scale).flatten(0, 1));
    }
  }
};

at::Tensor without_dropped(const at::Tensor& rows, const at::Tensor& keep) {
  return rows.masked_fill(~keep.unsqueeze(-1), 0.0).contiguous();
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> max_similarity_in_tiles(const at::Tensor& patches,
                                                                                   const at::Tensor& tokens,
                                                                                   const at::Tensor& patch_keep,
                                                                                   const at::Tensor& token_keep,
                                                                                   std::int64_t chunk) {
  const std::int64_t images = patches.size(0), places = patches.size(1), width = patches.size(2),
                     texts = tokens.size(0), words = tokens.size(1);
  const at::Tensor flat = patches.reshape({images * places, width});
  const at::TensorOptions numbers = patches.options(), indices = patches.options().dtype(at::kShort);
  const at::Tensor best_token = at::empty({images, texts, places}, indices);
  const at::Tensor best_patch = at::empty({images, texts, words}, indices);
  const at::Tensor i2t = at::empty({images, texts}, numbers), t2i = at::empty({images, texts}, numbers);
  const at::Tensor patch_share = share(patch_keep, patches.scalar_type());  // [B, 1]
  const at::Tensor token_share = share(token_keep, patches.scalar_type());  // [C, 1]
  const at::Tensor drop_patch = ~patch_keep.unsqueeze(-1);                  // [B, P, 1]
  const at::Tensor no_patch = ~patch_keep.any(1).view({images, 1, 1});      // [B, 1, 1]
  for (std::int64_t start = 0; start < texts; start += chunk) {
    const std::int64_t count = std::min(chunk, texts - start);
    const at::Tensor keep = token_keep.narrow(0, start, count);  // [t, L]
    const at::Tensor products = at::matmul(flat, tokens.narrow(0, start, count).reshape({count * words, width}).t())
                                    .view({images, places, count, words});
    const auto [token_value, token] = products.masked_fill(~keep, kNoSimilarity).max(3);  // [B, P, t]
    const at::Tensor nothing = drop_patch | ~keep.any(1);                                  // [B, P, t]
    i2t.narrow(1, start, count).copy_(token_value.masked_fill(nothing, 0).sum(1) * patch_share);
    best_token.narrow(1, start, count).copy_(token.transpose(1, 2));
    const auto [patch_value, patch] =
        products.masked_fill(drop_patch.unsqueeze(-1), kNoSimilarity).max(1);  // [B, t, L]
    t2i.narrow(1, start, count)
        .copy_(patch_value.masked_fill(no_patch | ~keep, 0).sum(2) * token_share.narrow(0, start, count).t());
    best_patch.narrow(1, start, count).copy_(patch);
  }
  return {i2t, t2i, best_token, best_patch};
}

std::tuple<at::Tensor, at::Tensor> max_similarity_gradient(const at::Tensor& grad_i2t, const at::Tensor& grad_t2i,
                                                           const at::Tensor& patches, const at::Tensor& tokens,
                                                           const at::Tensor& patch_keep, const at::Tensor& token_keep,
                                                           const at::Tensor& best_token, const at::Tensor& best_patch) {
  const at::Tensor image_rows = without_dropped(patches, patch_keep), text_rows = without_dropped(tokens, token_keep);
  at::Tensor patch_gradient = at::zeros_like(image_rows), token_gradient = at::zeros_like(text_rows);
  const at::ScalarType dtype = patches.scalar_type();
  // If a text has no tokens, or an image has no patches, all its similarities are 0 and have no gradient.
  const at::Tensor i2t_weight = (grad_i2t * share(patch_keep, dtype)).masked_fill(~token_keep.any(1), 0);  // [B, C]
  const at::Tensor t2i_weight =
      (grad_t2i.t() * share(token_keep, dtype)).masked_fill(~patch_keep.any(1), 0);  // [C, B]
  MaxGradient{image_rows, text_rows, best_token, i2t_weight, patch_keep}.add_to(patch_gradient, token_gradient);
  MaxGradient{text_rows, image_rows, best_patch.transpose(0, 1), t2i_weight, token_keep}.add_to(token_gradient,
                                                                                                patch_gradient);
  return {patch_gradient, token_gradient};
}

}  // namespace tessera
