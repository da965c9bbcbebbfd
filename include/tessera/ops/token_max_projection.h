#pragma once

#include <ATen/core/Tensor.h>

namespace tessera {

struct TokenMaxProjection {
  at::Tensor encoding;  // [B, V] float32 (float64 for float64), at least 0
  at::Tensor argmax;    // [B, V] int64, position of the maximum; -1 in a row without a real position. Not differentiable
};

/// STAIR's token projection head (eq. 4-5) after its transform: scores every entry of a token table at every position,
/// takes each entry's maximum over the positions, and returns log(1 + relu) of that maximum.
///   encoding(b, v) = log(1 + max(0, max over real n of tokens(b, n) . table(v) + bias(v)))
/// tokens   [B, N, w]  N and w at least 1; float32, bfloat16, float16 or float64
/// mask     [B, N]     bool, true = real position; undefined: all real
/// table    [V, w]     of the tokens' type, V at least 1
/// bias     [V]        any floating type
/// `argmax` is the position of the maximum, whether that is positive or negative; the lowest position if several are
/// equal. The gradient of an entry goes only to that position, its row of the table and its bias; an entry of 0 passes
/// no gradient, nor does a row without a real position. Padding receives no gradient, and its values do not matter,
/// even if they are NaN. A NaN at a real position makes its entry NaN.
///
/// Only [B, V] and a tile of [B, N, V] are ever stored. The backward pass computes no products: it adds the rows at the
/// positions of the maxima, so entries of 0 cost nothing. Results are the same in every run and for any number of
/// threads. Sums are float32 or better; autocast affects only products on a GPU. Throws c10::Error naming the tensor
/// that does not fit. Differentiable once.
TokenMaxProjection token_max_projection(const at::Tensor& tokens, const at::Tensor& mask, const at::Tensor& table,
                                        const at::Tensor& bias);

}  // namespace tessera
