#pragma once

#include <ATen/core/Tensor.h>

namespace tessera::metrics {

/// Places of the best right answers by cosine, as RetrievalScores has them.
struct CosineRanks {
  at::Tensor image;  // [N] int64
  at::Tensor text;   // [M] int64
};

/// images [N, D], texts [M, D] floating, owner [M] int64 below N, all on the CPU. Each tile of the matrix is made once, in
/// float32, for both directions; what lies so near a right answer's cosine that rounding could decide is computed in double.
/// Beyond its arguments it holds a tile and a few numbers of each row.
CosineRanks cosine_ranks(const at::Tensor& images, const at::Tensor& texts, const at::Tensor& owner);

}  // namespace tessera::metrics
