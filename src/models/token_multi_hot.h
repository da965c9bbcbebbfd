#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace tessera {

/// Returns which tokens of the vocabulary a text contains: STAIR's mask in its first stage (eq. 8), and the encoding of
/// a text in a model without a text tower.
/// ids          [B, L]  int64; any value at padding
/// mask         [B, L]  bool, true = real; undefined: all real
/// special_ids  [S]     int64 on the same device: ids that are false in the result even if the text contains them; undefined: none
/// returns      [B, vocab_size] bool
/// Throws c10::Error when shapes or types do not fit; a real id outside the vocabulary is an error on the CPU.
at::Tensor token_multi_hot(const at::Tensor& ids, const at::Tensor& mask, std::int64_t vocab_size,
                           const at::Tensor& special_ids = {});

}  // namespace tessera
