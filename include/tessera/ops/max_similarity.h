#pragma once

#include <optional>
#include <utility>

#include <ATen/core/Tensor.h>

namespace tessera {

/// Token-wise maximum similarity of every image with every text (FILIP, eq. 4-5), so that [B, C, P, L] is never held;
/// the backward pass adds rows along the places of the maxima that the forward pass kept (16 bits each).
/// patches     [B, P, D]  float32, float64 or, on a GPU with kernels, bfloat16; normalized by the caller. P from 1 to
///                        32,767
/// tokens      [C, L, D]  same type and device. L from 0 to 32,767, for the GPU's kernels to 1,024
/// patch_keep  [B, P]     bool
/// token_keep  [C, L]     bool; a text without any has similarity 0 with every image and passes no gradient, and so has an
///                        image with every text. Rows that are not kept touch nothing and receive no gradient, even if
///                        they hold NaN.
/// chunk       texts per tile of the composed operations (float64, devices without kernels); null: as many as fit into
///             about 64 MB. The kernels need none of it
/// returns     i2t [B, C] = mean over kept patches of the maximum over kept tokens of their product, and
///             t2i [B, C] = mean over kept tokens of the maximum over kept patches, float32 for bfloat16
/// A kernel gives the gradient to the first of equal maxima and the same bits in every run; composed operations do so
/// on the CPU alone. On a GPU float32 products are within 2^-16 |x| |y|. Throws c10::Error naming the tensor that does
/// not fit. Differentiable once.
std::pair<at::Tensor, at::Tensor> max_similarity(const at::Tensor& patches, const at::Tensor& tokens,
                                                 const at::Tensor& patch_keep, const at::Tensor& token_keep,
                                                 std::optional<std::int64_t> chunk);

}  // namespace tessera
