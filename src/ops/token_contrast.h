#pragma once

#include <ATen/core/Tensor.h>

namespace tessera {

/// Contrasts tokens within each pair (SPARC, eq. 6; MGCA, eq. 4-6). Row n of `queries` [B, N, D] matches row n of `keys` [B, N, D]; rows
/// have unit length. Returns (row cross-entropy + column cross-entropy) / 2, [B, N]. Rows where `mask` [B, N] is false are left out of the
/// contrast and get 0. If the mask is undefined, no row is left out.
///
/// On a GPU, up to 128 rows in float32 or bfloat16 use a fused kernel (kernels/token_contrast), which can be differentiated once and reads
/// no padding. All else is composed of LibTorch's operations.
at::Tensor token_contrast(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& mask, const at::Tensor& scale);

/// The same for rows of any length and type, which are normalized first (unit_rows). The losses are float32, or float64 for float64 rows.
at::Tensor normalized_token_contrast(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& mask, const at::Tensor& scale);

}  // namespace tessera
