#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "src/models/packed_rows.h"

namespace tessera {

/// Returns the keys [count] int64 of the rows at positions first, first + stride, ... of the global batch. All randomness of a row in a
/// training step depends only on the row's key, not on the number of ranks or the chunks of a batch.
at::Tensor row_keys(std::uint64_t step_seed, std::int64_t first, std::int64_t stride, std::int64_t count);

/// While a RowRngScope exists, row_random_int() in its thread draws each row's numbers from the row's key. Equal keys give equal numbers in
/// every scope.
class RowRngScope {
 public:
  /// keys: [B], from row_keys, on the device of the rows. If they are undefined, the scope has no effect.
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

/// Returns keys [views * B] for the rows of some views of the batch, one view after the other. Each view has its own numbers, which are the
/// same whether the view is encoded separately or together with others. Returns an undefined tensor outside a RowRngScope with keys.
at::Tensor row_keys_of_views(const std::vector<std::string>& views);

/// Returns keys [rows * parts] for the parts of each row, such as the captions of an image. The keys come from row_random_int(). Returns an
/// undefined tensor outside a RowRngScope with keys.
at::Tensor row_keys_of_parts(std::int64_t rows, std::int64_t parts, const at::Device& device);

/// Returns one key per token of sequences [rows, length]. The result has shape [rows * length], or [T] if the tokens are packed. The keys
/// come from row_random_int(). A token's key depends only on its row's key and its position, not on packing or the sequences' length.
at::Tensor token_keys(std::int64_t rows, std::int64_t length, const at::Device& device, const PackedRows& packed = {});

/// Returns uniform random integers [rows, count] from 0 to 2^63 - 1. Inside a RowRngScope with keys, a row's numbers depend only on the
/// row's key and on how many numbers the scope has drawn before. Otherwise, the device's default generator draws them.
at::Tensor row_random_int(std::int64_t rows, std::int64_t count, const at::Device& device);

/// Returns float32 random numbers [rows, count], uniform in the open interval (0, 1), computed from row_random_int(). Used for Gumbel
/// noise, stochastic depth and the like.
at::Tensor row_uniform(std::int64_t rows, std::int64_t count, const at::Device& device);

}  // namespace tessera
