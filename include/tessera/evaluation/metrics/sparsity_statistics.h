#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace tessera::metrics {

struct SparsityStatistics {
  at::Tensor active_per_row;      // [N] int64, entries above 0
  double mean_active = 0;         // mean of active_per_row
  double density = 0;             // share of entries that are active
  std::int64_t dead_columns = 0;  // columns that are active in no row
  double expected_flops = 0;      // cost of comparing two rows: sum over columns of (share of rows in which it is active)^2
};

/// Measures the sparsity of encodings [N, V] floating (STAIR, section 5). Throws c10::Error unless N and V are at least 1.
SparsityStatistics sparsity_statistics(const at::Tensor& encoding);

}  // namespace tessera::metrics
