#pragma once

#include <ATen/core/Tensor.h>

#include <tessera/models/packed_rows.h>

namespace tessera {

/// Which keys each query may attend to, in the form that scaled_dot_product_attention expects. Built once per forward
/// pass.
struct AttentionMask {
  bool causal = false;  // query i sees keys 0..i; only when `allowed` is undefined
  PackedRows packed;    // packed queries, keys and values attend only within their own row; undefined: not packed
  at::Tensor allowed;   // [B, 1, 1, K] bool, all true in rows without any real key; or floating [1, 1, N, K], added to the scores
  at::Tensor has_key;   // [B, 1, 1, 1] bool: false in such rows; their output is then 0. Undefined: not needed
};

/// The mask for queries that are not the keys: key_mask [B, K] bool (true = real key) or undefined. Queries without any
/// key get output 0.
AttentionMask attention_mask(const at::Tensor& key_mask, std::int64_t keys);

/// The mask for tokens that attend to each other: mask [B, N] bool (true = real) or undefined. Outputs at padding are
/// finite but meaningless; call zero_padding() at the end.
AttentionMask self_attention_mask(const at::Tensor& mask, std::int64_t tokens);

/// The same, but each token sees only itself and those before it. Padding must be on the right (checked on the CPU;
/// throws c10::Error), so no real token sees any, and kernels for plain causal attention can be used.
AttentionMask causal_attention_mask(const at::Tensor& mask, std::int64_t tokens);

/// Multi-head attention on projected inputs: heads are contiguous slices of the width, scores are scaled by
/// (width/heads)^-1/2. query [B, N, w], key and value [B, K, w]; returns [B, N, w]. If packed, all are [T, w].
at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, std::int64_t heads,
                  const AttentionMask& mask = {});

/// Returns tokens [B, N, w] with 0 where mask [B, N] is false (NaN there does no harm, forward or backward). Without a
/// mask it returns them unchanged.
at::Tensor zero_padding(const at::Tensor& tokens, const at::Tensor& mask);

/// Returns float32 for narrower floating types, otherwise the tensor unchanged: norms, sums and softmax never run in
/// bf16.
at::Tensor at_least_float(const at::Tensor& tensor);

}  // namespace tessera
