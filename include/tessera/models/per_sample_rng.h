#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <tessera/models/packed_rows.h>

namespace tessera {

/// Keys [count] int64 of the rows at the places first, first + stride, ... of the global batch. What is random of a row
/// in a training step follows from its key: neither the number of ranks nor chunks of a batch change it.
at::Tensor row_keys(std::uint64_t step_seed, std::int64_t first, std::int64_t stride, std::int64_t count);

/// While it lives, row_random_int() of this thread draws for the rows of these keys, the same numbers in each such scope.
class RowRngScope {
 public:
  /// keys [B] as of row_keys, on the device of the rows; undefined: as if it were not there.
  explicit RowRngScope(at::Tensor keys);
  ~RowRngScope();
  RowRngScope(const RowRngScope&) = delete;
  RowRngScope& operator=(const RowRngScope&) = delete;

 private:
  friend at::Tensor row_keys_of_views(const std::vector<std::string>&);
  friend at::Tensor row_keys_of_parts(std::int64_t, std::int64_t, const at::Device&);
  friend at::Tensor row_random_int(std::int64_t, std::int64_t, const at::Device&);
  at::Tensor keys_;
  std::int64_t drawn_ = 0;
  RowRngScope* outer_;
};

/// Keys [views * B] for the rows of some views of the batch, one view below the other: each view has numbers of its own,
/// the same alone and beside others. Undefined outside of a RowRngScope with keys.
at::Tensor row_keys_of_views(const std::vector<std::string>& views);

/// Keys [rows * parts] for the parts of each row (the captions of an image), drawn as row_random_int. Undefined outside of a
/// RowRngScope with keys.
at::Tensor row_keys_of_parts(std::int64_t rows, std::int64_t parts, const at::Device& device);

/// Keys for the tokens of sequences [rows, length]: [rows * length], or of packed ones [T], drawn as row_random_int. A token's
/// key follows from its row's key and its place there, whether the sequences are packed or not and whatever their length.
at::Tensor token_keys(std::int64_t rows, std::int64_t length, const at::Device& device, const PackedRows& packed = {});

/// Uniform integers [rows, count], at least 0: from the rows' keys, other ones in each call; outside of a RowRngScope from
/// the device's default generator.
at::Tensor row_random_int(std::int64_t rows, std::int64_t count, const at::Device& device);

/// Uniform numbers [rows, count] in the open interval (0, 1), float32, drawn as row_random_int; for Gumbel noise,
/// stochastic depth and the like.
at::Tensor row_uniform(std::int64_t rows, std::int64_t count, const at::Device& device);

}  // namespace tessera
