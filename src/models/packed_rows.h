#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace tessera {

/// The positions of the real tokens of a padded batch [B, L]. Packed, the tokens form one sequence [T, w], row after row, without the
/// padding. Token-wise layers then compute nothing for padding, and attention keeps the rows apart.
struct PackedRows {
  std::int64_t rows = 0;     // B
  std::int64_t length = 0;   // L
  std::int64_t longest = 0;  // number of real tokens in the longest row, at least 1
  at::Tensor places;         // int64 [T], index b * L + n of each real token, in increasing order; undefined: nothing is packed
  at::Tensor row_of;         // int64 [T], the row b that contains each real token
  at::Tensor offsets;        // int32 [B + 1], the index in the packed sequence at which each row starts, and T at the end
  // If set, T is only a bound on the number of real tokens, so that shapes do not depend on the mask. The tokens behind the last real one
  // have the place B * L and belong to further rows of `offsets`, which attend to themselves. They are no part of any result.
  bool bounded = false;
  // int64 [T], flat index of each token in a tensor [rows of `offsets`, longest] with left-aligned rows; undefined if the mask is on a GPU
  at::Tensor filled_places;

  bool defined() const { return places.defined(); }
};

/// Returns the packing of a padded batch. mask: bool [B, L], true for real tokens, on any device. lengths: int64 [B] on the CPU, the number
/// of true values in each row of the mask; may be undefined if the mask is also on the CPU. Returns an undefined packing if there is no
/// padding, or if the lengths cannot be known without waiting for the device. Throws c10::Error if mask and lengths have different numbers
/// of rows. If `lengths` come from length_bound(), the packing is computed from the mask on its device, with the bound as its T.
PackedRows packed_rows(const at::Tensor& mask, const at::Tensor& lengths = {});

/// The number of tokens by which packings with a bound differ in size.
inline constexpr std::int64_t kPackingBucket = 512;

/// Returns, instead of the lengths [B] or [B, K] of texts, a tensor of the same shape that states only a bound on their sum: the sum rounded
/// up to a multiple of kPackingBucket. A recorded step (training.cuda_graph) is right for all batches with the same bound.
at::Tensor length_bound(const at::Tensor& lengths);
/// Returns length_bound()'s bound; 0 if the lengths are not from it.
std::int64_t bound_of(const at::Tensor& lengths);

/// Packs x [B, L, ...] -> [T, ...]. Values at padding, even NaN, affect neither the result nor a gradient.
at::Tensor pack(const at::Tensor& x, const PackedRows& rows);

/// Unpacks x [T, ...] -> [B, L, ...], 0 at padding.
at::Tensor unpack(const at::Tensor& x, const PackedRows& rows);

/// Like attend(), but for packed tokens [T, w]. Each token attends to all tokens of its row or, if `causal` is set, to itself and the row's
/// earlier tokens. A GPU uses kernels for sequences of varying lengths; on the CPU, each row is padded to the longest row's length.
at::Tensor attend_in_rows(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, std::int64_t heads,
                          const PackedRows& rows, bool causal);

}  // namespace tessera
