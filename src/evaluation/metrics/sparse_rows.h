#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace tessera::metrics {

/// Returns rows begin .. begin + count - 1 of a matrix, dense or coalesced sparse COO; a dense result shares memory.
at::Tensor narrow_rows(const at::Tensor& rows, std::int64_t begin, std::int64_t count);

/// Returns cosines [N, M] in double of rows with mostly zero entries: a [N, D], b [M, D] floating, dense or coalesced sparse
/// COO, on the CPU. The time is proportional to N times the nonzero entries of b. Needs extra memory for the nonzero entries of
/// a and b, and for D numbers per thread. A length below 1e-12 counts as 1e-12.
at::Tensor sparse_cosines(const at::Tensor& a, const at::Tensor& b);

}  // namespace tessera::metrics
