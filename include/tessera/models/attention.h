#pragma once

#include <ATen/core/Tensor.h>

#include <tessera/models/packed_rows.h>

namespace tessera {

/// Which keys each query may attend to, in the form scaled_dot_product_attention wants. Made once per forward.
struct AttentionMask {
  bool causal = false;  // query i sees keys 0..i; only when `allowed` is undefined
  PackedRows packed;    // queries, keys and values are packed: each sees those of its own row; undefined: they are not
  at::Tensor allowed;   // [B, 1, 1, K] bool, all true in rows without any real key; or floating [1, 1, N, K], added to the scores
  at::Tensor has_key;   // [B, 1, 1, 1] bool: false in such rows, whose output is then 0; undefined: it need not be
};

/// For queries of their own: key_mask [B, K] bool (true = real key) or undefined. Queries without any key give 0.
AttentionMask attention_mask(const at::Tensor& key_mask, std::int64_t keys);

/// For tokens that attend to each other: mask [B, N] bool (true = real) or undefined. What tokens of the padding give is
/// finite and of no meaning; zero_padding() must take it away in the end.
AttentionMask self_attention_mask(const at::Tensor& mask, std::int64_t tokens);

/// The same where each token sees itself and those before it. Padding is on the right (on the CPU this is checked; throws
/// c10::Error), so no real token sees any, and kernels for plain causal attention serve.
AttentionMask causal_attention_mask(const at::Tensor& mask, std::int64_t tokens);

/// Multi-head attention on projected inputs: heads are contiguous slices of the width, scores are scaled by
/// (width/heads)^-1/2. query [B, N, w], key and value [B, K, w]; returns [B, N, w]. Packed ones: all of them [T, w].
at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, std::int64_t heads,
                  const AttentionMask& mask = {});

/// The tensor with 0 where mask [B, N] is false (NaN there does no harm, forward or backward); as it is without a mask.
/// tokens [B, N, w].
at::Tensor zero_padding(const at::Tensor& tokens, const at::Tensor& mask);

/// float32 for narrower floating types, otherwise unchanged: norms, sums and softmax never run in bf16.
at::Tensor at_least_float(const at::Tensor& tensor);

}  // namespace tessera
