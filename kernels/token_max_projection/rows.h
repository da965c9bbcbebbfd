#pragma once

#include <cstdint>

namespace tessera::kernels {

/// The inner loops of token_max_projection, compiled for one instruction set.
struct RowKernels {
  /// For each column of a contiguous matrix [rows, columns] (rows at least 1), writes the column's maximum and the
  /// lowest row that has it. If a column contains a NaN, its maximum is NaN.
  void (*maxima)(const float* matrix, std::int64_t rows, std::int64_t columns, float* maximum, std::int32_t* row);
  /// For each c < width, sets to[c] to the sum over i of weights[i] * table[index[i]][c], added in the order of i. `index`
  /// holds row numbers of the table, whose rows have `width` floats.
  void (*weighted_sum)(const float* table, std::int64_t width, const std::int32_t* index, const float* weights,
                       std::int64_t count, float* to);
};

extern const RowKernels kPortableRowKernels;
#if defined(TESSERA_X86_KERNELS)
extern const RowKernels kAvx2RowKernels;
extern const RowKernels kAvx512RowKernels;
#endif

}  // namespace tessera::kernels
