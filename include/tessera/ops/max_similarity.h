#pragma once

#include <optional>
#include <utility>

#include <ATen/core/Tensor.h>

namespace tessera {

/// Token-wise maximum similarity of every image with every text (FILIP, eq. 4-5), made in tiles, so that [B, C, P, L]
/// is never held; the backward pass gathers along the places of the maxima that the forward pass kept.
/// patches     [B, P, D]  float32 or float64, normalized by the caller; P at least 1
/// tokens      [C, L, D]  same type and device
/// patch_keep  [B, P]     bool; at least one per row
/// token_keep  [C, L]     bool; a text without any has similarity 0 with every image and passes no gradient. Rows that
///                        are not kept touch nothing and receive no gradient, even if they hold NaN.
/// chunk       texts per tile; null: as many as fit into about 64 MB. The CPU's float32 kernel needs none of it: it
///             takes one image and one text at a time
/// returns     i2t [B, C] = mean over kept patches of the maximum over kept tokens of their product, and
///             t2i [B, C] = mean over kept tokens of the maximum over kept patches
/// Of equal maxima the first gets the gradient on the CPU; which one on other devices is unspecified. Throws c10::Error
/// naming the tensor that does not fit. Differentiable once.
std::pair<at::Tensor, at::Tensor> max_similarity(const at::Tensor& patches, const at::Tensor& tokens,
                                                 const at::Tensor& patch_keep, const at::Tensor& token_keep,
                                                 std::optional<std::int64_t> chunk);

}  // namespace tessera
