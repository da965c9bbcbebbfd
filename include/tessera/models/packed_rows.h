#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace tessera {

/// Where the real tokens of a padded batch [B, L] stand. Packed, they are one sequence [T, w], row after row, without the
/// padding between them: layers that work token by token compute nothing for it, and attention keeps the rows apart.
struct PackedRows {
  std::int64_t rows = 0;     // B
  std::int64_t length = 0;   // L
  std::int64_t longest = 0;  // most real tokens of a row, at least 1
  at::Tensor places;         // int64 [T], b * L + n of each real token, rising; undefined: nothing is packed
  at::Tensor row_of;         // int64 [T], its b
  at::Tensor offsets;        // int32 [B + 1], where each row begins in the packed sequence, and T
  at::Tensor filled_places;  // int64 [T], places in [B, longest] with each row's tokens at its left; on the CPU alone

  bool defined() const { return places.defined(); }
};

/// mask [B, L] bool, true = real, on any device; lengths int64 [B] on the CPU, how many are true in each row, which may be
/// undefined where the mask is on the CPU too. Undefined where there is no padding, or no way to tell without waiting for
/// the device. Throws c10::Error where the two disagree on the number of rows.
PackedRows packed_rows(const at::Tensor& mask, const at::Tensor& lengths = {});

/// x [B, L, ...] -> [T, ...]. What stands in the padding, be it NaN, reaches neither the result nor a gradient.
at::Tensor pack(const at::Tensor& x, const PackedRows& rows);

/// x [T, ...] -> [B, L, ...], 0 in the padding.
at::Tensor unpack(const at::Tensor& x, const PackedRows& rows);

/// As attend(), of packed tokens [T, w] to those of their own row; `causal`: to themselves and those before them. On a GPU
/// by kernels for sequences of many lengths, on the CPU with each row filled up to the longest.
at::Tensor attend_in_rows(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, std::int64_t heads,
                          const PackedRows& rows, bool causal);

}  // namespace tessera
