#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

namespace tessera {

/// InfoNCE in both directions and their mean; scalars.
struct Contrast {
  at::Tensor loss;
  at::Tensor i2t;
  at::Tensor t2i;
};

/// InfoNCE of similarities [B, B] (row = image, column = text): images choose along the rows of `i2t`, texts along the
/// columns of `t2i`; the right pair is on the diagonal. `scale` is 1/temperature, a scalar.
Contrast info_nce(const at::Tensor& i2t, const at::Tensor& t2i, const at::Tensor& scale);

/// InfoNCE of the cosines of global embeddings [B, D], not normalised (CLIP, eq. 1 of SPARC). With `chunk` the
/// similarities are made in tiles of that many images, forward and backward, and [B, B] is never held. The place where
/// a batch spread over ranks would be gathered.
Contrast global_contrast(const at::Tensor& image_global, const at::Tensor& text_global, const at::Tensor& scale,
                         std::optional<std::int64_t> chunk);

/// Contrast within each pair: row n of `queries` [B, N, D] belongs to row n of `keys` [B, N, D], both of unit length.
/// Returns [B, N]: (row cross-entropy + column cross-entropy) / 2 over the rows where `mask` [B, N] is true, 0
/// elsewhere; an undefined mask means all rows. (SPARC, eq. 6; MGCA, eq. 4-6.)
at::Tensor token_contrast(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& mask,
                          const at::Tensor& scale);

}  // namespace tessera
