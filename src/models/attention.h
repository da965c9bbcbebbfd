#pragma once

#include <ATen/core/Tensor.h>

#include "src/models/packed_rows.h"

namespace tessera {

/// Which keys each query may attend to, in the form that scaled_dot_product_attention expects. Built once per forward
/// pass.
struct AttentionMask {
  bool causal = false;  // whether query i attends only to keys 0..i; used only if `allowed` is undefined
  PackedRows packed;    // if defined, the tokens are packed, and each token attends only to tokens of its own row
  // bool, or floating and then added to the scores; it broadcasts to [B, heads, N, K], where N and K include padding even if the tokens are
  // packed. Each query may attend to a key.
  at::Tensor allowed;
  // [B, 1, 1, 1] bool, false in rows without any real key, for which attend() returns 0; undefined: every row has a real key
  at::Tensor has_key;
};

/// Returns the mask for cross-attention, where queries and keys come from different sequences. key_mask: [B, K] bool, true for real keys;
/// undefined if all keys are real. Queries of a row without any real key get output 0.
AttentionMask attention_mask(const at::Tensor& key_mask, std::int64_t keys);

/// Returns the mask for tokens that attend to each other. mask: [B, N] bool, true for real tokens; undefined if all tokens are real.
/// Outputs at padding are finite but meaningless; call zero_padding() at the end.
AttentionMask self_attention_mask(const at::Tensor& mask, std::int64_t tokens);

/// Does the same as self_attention_mask(), but lets each token attend only to itself and the tokens before it. Padding must be on the right
/// (checked on the CPU; throws c10::Error). Real tokens then never attend to padding, so kernels for plain causal attention can be used.
AttentionMask causal_attention_mask(const at::Tensor& mask, std::int64_t tokens);

/// Does the same as self_attention_mask() with a bias [1, heads, N, N] that is added to the scores, and lets each token attend only to tokens
/// at most `window` places away; 0 means all. The bias may be undefined. With `causal`, tokens attend only to themselves and earlier tokens.
AttentionMask placed_attention_mask(const at::Tensor& mask, std::int64_t tokens, const at::Tensor& bias, std::int64_t window, bool causal,
                                    const at::Device& device);

/// Computes multi-head attention on projected inputs. Heads are contiguous slices of the width, and scores are scaled by
/// (width/heads)^-1/2. query [B, N, w], key and value [B, K, w]; returns [B, N, w]. If the mask is packed, inputs and result are [T, w].
at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, std::int64_t heads,
                  const AttentionMask& mask = {});

/// Returns tokens [B, N, w] with 0 where mask [B, N] is false. NaN at these places affects neither outputs nor gradients. If the mask is
/// undefined, returns the tokens unchanged.
at::Tensor zero_padding(const at::Tensor& tokens, const at::Tensor& mask);

/// Returns the tensor as float32 if it has a narrower floating type, otherwise unchanged. Norms, sums and softmax never run in bf16.
at::Tensor at_least_float(const at::Tensor& tensor);

}  // namespace tessera
