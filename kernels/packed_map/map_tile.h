#pragma once

#include <cstdint>

#include "kernels/packed_map/packed_map.h"

namespace tessera::kernels {

/// The loops of packed maps, compiled for one instruction set and one type of operands. A word is one float32, or two adjacent bfloat16 of a
/// row; a row of `in` values has words(in) of them.
struct MapKernels {
  int rows;   // most rows of a block
  int panel;  // columns of a panel of the weight
  int group;  // room for this many rows in a block
  std::int64_t (*words)(std::int64_t in);
  /// Packs up to `group` rows of a matrix [.., in] into block[words, group]; missing rows are 0.
  void (*pack)(const float* matrix, std::int64_t rows, std::int64_t in, int group, float* block);
  /// Computes `columns` columns of activation(x weight^T + bias) for the rows of one block. `bias` and `y` are at the first column.
  void (*tile)(const cpu::PackedMapCall& call, std::int64_t rows, const float* block, const float* panel, const float* bias,
               std::int64_t columns, float* y);
};

#if defined(TESSERA_X86_KERNELS)
extern const MapKernels kAvx2MapKernels;
extern const MapKernels kAvx512MapKernels;
extern const MapKernels kAvx512Bfloat16MapKernels;
#endif

}  // namespace tessera::kernels
