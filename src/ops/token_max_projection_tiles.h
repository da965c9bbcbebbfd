#pragma once

#include <tuple>

#include <ATen/core/Tensor.h>

/// Computes token_max_projection with tensor operations, in tiles of the vocabulary. Used for float64 and for devices
/// without kernels.
namespace tessera {

/// Returns (encoding, argmax) of tokens [B, N, w], mask [B, N] or undefined, table [V, w] and bias [V]. All have the
/// same type.
std::tuple<at::Tensor, at::Tensor> token_max_projection_in_tiles(const at::Tensor& tokens, const at::Tensor& mask,
                                                                 const at::Tensor& table, const at::Tensor& bias);

/// Returns the gradients of tokens and table. `weight` [B, V] is the gradient of each maximum over the tokens; it is 0 where a row has no
/// maximum, because all its tokens are masked.
std::tuple<at::Tensor, at::Tensor> token_max_projection_gradient(const at::Tensor& weight, const at::Tensor& tokens,
                                                                 const at::Tensor& mask, const at::Tensor& table,
                                                                 const at::Tensor& argmax);

}  // namespace tessera
