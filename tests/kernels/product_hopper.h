#pragma once

#include "kernels/device/hopper_layout.h"
#include "kernels/status.h"

namespace tessera::kernels::test {

/// Where the operands of a product are when it starts: both in tiles; a in registers; or b in blocks of 8 x 8 elements.
enum class Operands { kTiles, kRegisters, kBlocks };

/// A product c = a b with an example of a kernel for Hopper GPUs, in bfloat16. a is [rows, depth] or, with the depth across rows, [depth,
/// rows]. b is [columns, depth] or [depth, columns]. c is [rows, columns] or, if c_transposed is true, [columns, rows]. All are contiguous.
struct HopperProduct {
  std::int64_t rows = 0, columns = 0, depth = 0;
  Depth a_depth = Depth::kAlongRows, b_depth = Depth::kAlongRows;
  Operands operands = Operands::kTiles;  // kRegisters needs a_depth = kAlongRows
  bool c_transposed = false;
  const void *a = nullptr, *b = nullptr;
  void* c = nullptr;
};

}  // namespace tessera::kernels::test

/// hopper_product() multiplies with blocks of 56 or 200 columns. runs_hopper_kernels() tells whether the current GPU has compute
/// capability 9.0.
namespace tessera::kernels::cuda {
Status hopper_product(const test::HopperProduct& product, int block_columns);
bool runs_hopper_kernels();
}  // namespace tessera::kernels::cuda
namespace tessera::kernels::emulation {
Status hopper_product(const test::HopperProduct& product, int block_columns);
bool runs_hopper_kernels();
}  // namespace tessera::kernels::emulation
