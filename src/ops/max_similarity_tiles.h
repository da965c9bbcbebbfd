#pragma once

#include <tuple>

#include <ATen/core/Tensor.h>

/// Computes max_similarity with tensor operations, in tiles of texts. Used for float64 and for devices without kernels.
namespace tessera {

/// Returns (i2t [B, C], t2i [B, C], best_token [B, C, P] int16, best_patch [B, C, L] int16). A tile has `chunk` texts.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> max_similarity_in_tiles(const at::Tensor& patches,
                                                                                   const at::Tensor& tokens,
                                                                                   const at::Tensor& patch_keep,
                                                                                   const at::Tensor& token_keep,
                                                                                   std::int64_t chunk);

/// Returns the gradients of patches and tokens, which follow from the positions of the maxima.
std::tuple<at::Tensor, at::Tensor> max_similarity_gradient(const at::Tensor& grad_i2t, const at::Tensor& grad_t2i,
                                                           const at::Tensor& patches, const at::Tensor& tokens,
                                                           const at::Tensor& patch_keep, const at::Tensor& token_keep,
                                                           const at::Tensor& best_token, const at::Tensor& best_patch);

}  // namespace tessera
