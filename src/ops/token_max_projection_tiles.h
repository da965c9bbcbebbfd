#pragma once

#include <tuple>

#include <ATen/core/Tensor.h>

/// token_max_projection from tensor operations, in tiles of the vocabulary: for float64 and for devices without
/// kernels.
namespace tessera {

/// Returns (encoding, argmax) of tokens [B, N, w], mask [B, N] or undefined, table [V, w] and bias [V], all of one
/// type.
std::tuple<at::Tensor, at::Tensor> token_max_projection_in_tiles(const at::Tensor& tokens, const at::Tensor& mask,
                                                                 const at::Tensor& table, const at::Tensor& bias);

/// Returns the gradients of tokens and table from `weight` [B, V], the gradient of each maximum, 0 where there is none.
std::tuple<at::Tensor, at::Tensor> token_max_projection_gradient(const at::Tensor& weight, const at::Tensor& tokens,
                                                                 const at::Tensor& mask, const at::Tensor& table,
                                                                 const at::Tensor& argmax);

}  // namespace tessera
