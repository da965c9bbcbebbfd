#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace tessera::metrics {

struct SparsityStatistics {
  at::Tensor active_per_row;      // [N] int64, entries above 0
  double mean_active = 0;         // of a row
  double density = 0;             // share of all entries
  std::int64_t dead_columns = 0;  // that no row has active
  double expected_flops = 0;      // sum over columns of (share of rows that have it active)^2: of comparing two rows
};

/// How sparse encodings [N, V] are (STAIR, section 5); N and V at least 1, floating. Throws c10::Error otherwise.
SparsityStatistics sparsity_statistics(const at::Tensor& encoding);

}  // namespace tessera::metrics
