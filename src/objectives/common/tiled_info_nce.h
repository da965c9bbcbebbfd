#pragma once

#include <utility>

#include <ATen/core/Tensor.h>

#include "src/objectives/common/contrast_targets.h"
#include <tessera/distributed/process_group.h>

namespace tessera {

/// The two directions of InfoNCE over the cosines of image [B, D] and text [B, D], both of unit length, without ever
/// holding more than a tile of them: a tile's softmaxes are computed again in the backward pass. Each similarity is
/// computed by one rank only, for both directions: blocks of texts travel around the ranks, and the log-sum-exp of
/// every text (forward) and its gradient (backward) travel along. Scalars (i2t, t2i), as info_nce gives them.
/// further: [B], the logarithm of what each image's softmax sums besides, relative to its right pair; undefined: nothing.
/// chunk: images per tile. No second derivatives.
std::pair<at::Tensor, at::Tensor> tiled_info_nce(const at::Tensor& image, const at::Tensor& text,
                                                 const at::Tensor& scale, const at::Tensor& further,
                                                 std::int64_t chunk, const ProcessGroup& group,
                                                 const ContrastTargets& targets);

}  // namespace tessera
