#pragma once

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include "src/models/attention.h"
#include "src/models/packed_rows.h"

namespace tessera {

constexpr double kTokenDeviation = 0.02;  // as in CLIP

/// A module that gives the token table its name in files: token_embedding.weight.
class TokenEmbedding : public torch::nn::Module {
 public:
  TokenEmbedding(std::int64_t vocabulary, std::int64_t width, double deviation = kTokenDeviation)
      : weight(register_parameter("weight", deviation * at::randn({vocabulary, width}))) {}
  at::Tensor weight;
};

/// Returns table[ids] * scale + positions[:L], a tensor [B, L, w], with table [V, w], ids [B, L] and positions [>= L, w], which may be
/// undefined: then nothing is added. The result is 0
/// where mask [B, L] is false. If the mask is undefined, all tokens are real. At padding, ids may have any value, even an invalid one, and
/// contribute no gradient.
inline at::Tensor embed_tokens(const at::Tensor& table, const at::Tensor& positions, const at::Tensor& ids,
                               const at::Tensor& mask, double scale = 1.0) {
  const at::Tensor safe_ids = mask.defined() ? ids.masked_fill(mask.logical_not(), 0) : ids;
  const at::Tensor words = at::embedding(table, safe_ids);
  const at::Tensor scaled = scale == 1.0 ? words : words * scale;
  return zero_padding(positions.defined() ? scaled + positions.slice(0, 0, ids.size(1)) : scaled, mask);
}

/// Like embed_tokens(), but for only the real tokens: ids [B, L] -> packed [T, w].
inline at::Tensor embed_packed_tokens(const at::Tensor& table, const at::Tensor& positions, const at::Tensor& ids,
                                      const PackedRows& rows, double scale = 1.0) {
  const at::Tensor words = at::embedding(table, pack(ids, rows));
  const at::Tensor scaled = scale == 1.0 ? words : words * scale;
  return positions.defined() ? scaled + at::embedding(positions, rows.places.remainder(rows.length)) : scaled;
}

}  // namespace tessera
