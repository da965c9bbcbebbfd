#pragma once

#include <ATen/core/Tensor.h>

namespace tessera {

struct TokenMaxProjection {
  at::Tensor encoding;  // [B, V] float32 (float64 for float64), at least 0
  at::Tensor argmax;    // [B, V] int64; -1 in a row without a real position. Takes no gradient
};

/// The product of every position with a table of tokens, its maximum over positions, and log(1 + relu) of that: STAIR's
/// token projection head (eq. 4-5) behind its transform.
///   encoding(b, v) = log(1 + max(0, max over real n of tokens(b, n) . table(v) + bias(v)))
/// tokens   [B, N, w]  N and w at least 1; float32, bfloat16, float16 or float64
/// mask     [B, N]     bool, true = real position; undefined: all real
/// table    [V, w]     of the tokens' type, V at least 1
/// bias     [V]        any floating type
/// `argmax` is the position of the maximum, whatever its sign; the lowest of equal ones. The gradient of an entry goes to
/// that position, its row of the table and its bias alone; an entry of 0 passes none, nor does a row without a real
/// position. Padding may hold anything, NaN too, and receives no gradient. A NaN at a real position makes its entry NaN.
///
/// [B, N, V] is never held, but [B, V] and a tile, and the backward pass makes no product: it adds rows along the
/// maxima, so that an entry of 0 costs nothing. Results are the same in every run and for any number of threads. Sums are
/// float32 or better; autocast reaches products on a GPU alone. Throws c10::Error naming the tensor that does not fit.
/// Differentiable once.
TokenMaxProjection token_max_projection(const at::Tensor& tokens, const at::Tensor& mask, const at::Tensor& table,
                                        const at::Tensor& bias);

}  // namespace tessera
