#pragma once

#include <ATen/core/Tensor.h>

namespace tessera {

/// Which keys each query may attend to, in the form scaled_dot_product_attention wants. Made once per forward.
struct AttentionMask {
  bool causal = false;  // query i sees keys 0..i; only when `allowed` is undefined
  at::Tensor allowed;   // [B, 1, N or 1, K] bool; all true for queries without any allowed key
  at::Tensor has_key;   // [B, 1, N or 1, 1] bool: false where no key was allowed, whose output is then 0
};

/// key_mask [B, K] bool (true = real key) or undefined; `causal` needs as many queries as keys.
AttentionMask attention_mask(const at::Tensor& key_mask, bool causal, std::int64_t keys);

/// Multi-head attention on projected inputs: heads are contiguous slices of the width, scores are scaled by
/// (width/heads)^-1/2. query [B, N, w], key and value [B, K, w]; returns [B, N, w]. A query whose keys are all
/// forbidden gives 0 and no gradient.
at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, std::int64_t heads,
                  const AttentionMask& mask = {});

/// The tensor with 0 where mask [B, N] is false (NaN there does no harm, forward or backward); as it is without a mask.
/// tokens [B, N, w].
at::Tensor zero_padding(const at::Tensor& tokens, const at::Tensor& mask);

/// float32 for narrower floating types, otherwise unchanged: norms, sums and softmax never run in bf16.
at::Tensor at_least_float(const at::Tensor& tensor);

}  // namespace tessera
