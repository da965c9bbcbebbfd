#pragma once

#include <ATen/core/Tensor.h>

namespace tessera::metrics {

/// The ranks of the best right answers by cosine, as in RetrievalScores.
struct CosineRanks {
  at::Tensor image;  // [N] int64
  at::Tensor text;   // [M] int64
};

/// Computes the ranks in both directions. images [N, D], texts [M, D] floating, owner [M] int64 below N, all on the CPU. Each
/// tile of the cosine matrix is computed once, in float32, for both directions. Cosines so close to a right answer's that
/// rounding could decide are recomputed in double. Needs memory for one tile and a few numbers per row.
CosineRanks cosine_ranks(const at::Tensor& images, const at::Tensor& texts, const at::Tensor& owner);

}  // namespace tessera::metrics
