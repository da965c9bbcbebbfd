#pragma once

#include <utility>

#include <ATen/core/Tensor.h>

#include "src/objectives/common/contrast_targets.h"
#include <tessera/distributed/process_group.h>

namespace tessera {

/// Returns InfoNCE in both directions (i2t, t2i), the same scalars as info_nce(), on the cosines of image [B, D] and text [B, D]. The rows
/// of `image` and `text` must have unit length. Only tiles of the cosines are ever in memory, and a tile's softmaxes are recomputed in the
/// backward pass. Each similarity is computed by only one rank, for both directions: blocks of texts travel around the ranks together with
/// each text's log-sum-exp (forward) or gradient (backward). further: [B], log(additional term of the image's softmax denominator) - (logit
/// of the matching pair); undefined if there is no such term. chunk: images per tile. Second derivatives are not supported.
std::pair<at::Tensor, at::Tensor> tiled_info_nce(const at::Tensor& image, const at::Tensor& text,
                                                 const at::Tensor& scale, const at::Tensor& further,
                                                 std::int64_t chunk, const ProcessGroup& group,
                                                 const ContrastTargets& targets);

}  // namespace tessera
