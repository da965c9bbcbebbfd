#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace tessera::metrics {

/// Returns the rows begin, ..., begin + count - 1 of a matrix, which is dense or coalesced sparse COO. A dense result shares memory
/// with the matrix.
at::Tensor narrow_rows(const at::Tensor& rows, std::int64_t begin, std::int64_t count);

/// Returns the cosines, double [N, M], between the rows of `a` [N, D] and the rows of `b` [M, D], two matrices that are mostly zero. The
/// matrices are floating-point, dense or coalesced sparse COO, and on the CPU. The time is proportional to N times the number of nonzero
/// entries of `b`. Needs additional memory for the nonzero entries of `a` and `b` and for D numbers per thread. A row whose Euclidean norm
/// is below 1e-12 counts as having the norm 1e-12.
at::Tensor sparse_cosines(const at::Tensor& a, const at::Tensor& b);

}  // namespace tessera::metrics
