#pragma once

#include <optional>
#include <utility>

#include <ATen/core/Tensor.h>

namespace tessera {

/// Token-wise maximum similarity of every image with every text (FILIP, eq. 4-5), made in tiles of texts, so that [B,
/// C, P, L] is never held; the backward pass gathers along the arg-maxima that the forward pass kept. patches    [B, P,
/// D]  float32 or float64, normalised by the caller; P at least 1 tokens     [C, L, D] patch_keep [B, P]     bool; at
/// least one per row token_keep [C, L]     bool; a text without any has similarity 0 with every image and passes no
/// gradient chunk                 texts per tile; null: as many as fit into about 64 MB returns    i2t [B, C] = mean
/// over kept patches of the maximum over kept tokens of their product, and t2i [B, C] = mean over kept
///            tokens of the maximum over kept patches. Which of equal maxima gets the gradient is unspecified.
std::pair<at::Tensor, at::Tensor> max_similarity(const at::Tensor& patches, const at::Tensor& tokens,
                                                 const at::Tensor& patch_keep, const at::Tensor& token_keep,
                                                 std::optional<std::int64_t> chunk);

}  // namespace tessera
