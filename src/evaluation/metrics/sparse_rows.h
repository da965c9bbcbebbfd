#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace tessera::metrics {

/// Rows begin .. begin + count - 1 of a matrix, dense or coalesced sparse COO; a dense result shares memory.
at::Tensor narrow_rows(const at::Tensor& rows, std::int64_t begin, std::int64_t count);

/// Cosines of rows of which most entries are 0, in double: a [N, D], b [M, D] floating, dense or coalesced sparse COO,
/// on the CPU; returns [N, M]. Takes time in proportion to N times the entries of b, and holds their entries and D
/// numbers for each thread besides a, b and the result. A length below 1e-12 counts as 1e-12.
at::Tensor sparse_cosines(const at::Tensor& a, const at::Tensor& b);

}  // namespace tessera::metrics
