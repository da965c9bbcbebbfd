#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace tessera {

/// The positions of the real tokens of a padded batch [B, L]. Packed, the tokens are one sequence [T, w], row after
/// row, without the padding between them: token-wise layers compute nothing for padding, and attention keeps the rows
/// apart.
struct PackedRows {
  std::int64_t rows = 0;     // B
  std::int64_t length = 0;   // L
  std::int64_t longest = 0;  // number of real tokens of the longest row, at least 1
  at::Tensor places;         // int64 [T], b * L + n of each real token, increasing; undefined: nothing is packed
  at::Tensor row_of;         // int64 [T], b of each real token
  at::Tensor offsets;        // int32 [B + 1], where each row starts in the packed sequence, and finally T
  at::Tensor filled_places;  // int64 [T], positions in [B, longest] with each row's tokens at its left; only on the CPU

  bool defined() const { return places.defined(); }
};

/// Returns the packing of mask [B, L] bool, true = real, on any device. lengths: int64 [B] on the CPU, the number of
/// true values in each row; may be undefined if the mask is also on the CPU. Undefined if there is no padding, or if
/// that cannot be known without waiting for the device. Throws c10::Error if the two have different numbers of rows.
PackedRows packed_rows(const at::Tensor& mask, const at::Tensor& lengths = {});

/// x [B, L, ...] -> [T, ...]. Values at padding, even NaN, affect neither the result nor a gradient.
at::Tensor pack(const at::Tensor& x, const PackedRows& rows);

/// x [T, ...] -> [B, L, ...], 0 at padding.
at::Tensor unpack(const at::Tensor& x, const PackedRows& rows);

/// As attend(), for packed tokens [T, w], each attending to the tokens of its own row; `causal`: only to itself and
/// those before it. A GPU uses kernels for sequences of varying lengths; on the CPU each row is padded to the longest.
at::Tensor attend_in_rows(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, std::int64_t heads,
                          const PackedRows& rows, bool causal);

}  // namespace tessera
