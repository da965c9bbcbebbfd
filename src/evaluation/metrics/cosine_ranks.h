#pragma once

#include <ATen/core/Tensor.h>

namespace tessera::metrics {

/// For each query, the rank of the correct answer with the highest cosine. RetrievalScores defines the ranks.
struct CosineRanks {
  at::Tensor image;  // [N] int64, for each image: the rank of the nearest of its own texts
  at::Tensor text;   // [M] int64, for each text: the rank of its image
};

/// Computes the ranks in both directions. Each tile of the cosine matrix is computed only once, in float32, for both directions. If a
/// cosine is so close to a correct answer's cosine that rounding could change their order, it is recomputed in double precision. Needs
/// memory for one tile and a few numbers per row. images: floating-point [N, D]. texts: floating-point [M, D]. owner: int64 [M], each
/// text's image, below N; negative if the text has none. All tensors must be on the CPU.
CosineRanks cosine_ranks(const at::Tensor& images, const at::Tensor& texts, const at::Tensor& owner);

}  // namespace tessera::metrics
