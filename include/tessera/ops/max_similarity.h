#pragma once

#include <optional>
#include <utility>

#include <ATen/core/Tensor.h>

namespace tessera {

/// Token-wise maximum similarity of every image with every text (FILIP, eq. 4-5) without ever storing [B, C, P, L]. The
/// forward pass keeps the positions of the maxima (16 bits each), and the backward pass adds the rows at these
/// positions.
/// patches     [B, P, D]  float32, float64 or, on a GPU with kernels, bfloat16; normalized by the caller. P from 1 to
///                        32,767
/// tokens      [C, L, D]  same type and device. L from 0 to 32,767 (GPU kernels: at most 1,024)
/// patch_keep  [B, P]     bool
/// token_keep  [C, L]     bool; a text without any kept token, or an image without any kept patch, has similarity 0 with
///                        everything and passes no gradient. Rows that are not kept have no effect and receive no
///                        gradient, even if they are NaN.
/// chunk       texts per tile of the composed operations (float64, devices without kernels); null: as many as fit in
///             about 64 MB. The kernels ignore it
/// returns     i2t [B, C] = mean over kept patches of the patch's largest dot product with a kept token, and
///             t2i [B, C] = mean over kept tokens of the token's largest dot product with a kept patch; float32 for bfloat16 inputs
/// The kernels give the gradient to the first of equal maxima and return the same bits in every run; composed operations have these two
/// properties only on the CPU. On a GPU, the error of a float32 product of x and y is at most 2^-16 |x| |y|. Throws c10::Error naming the
/// tensor that does not fit. Differentiable once.
std::pair<at::Tensor, at::Tensor> max_similarity(const at::Tensor& patches, const at::Tensor& tokens,
                                                 const at::Tensor& patch_keep, const at::Tensor& token_keep,
                                                 std::optional<std::int64_t> chunk);

}  // namespace tessera
