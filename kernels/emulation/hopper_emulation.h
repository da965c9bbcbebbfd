#pragma once

// What the emulation does for kernels/device/hopper.h. Besides wrong numbers, it detects these mistakes:
//   - A copy or a product that the kernel does not wait for, or reads too early: the memory that the copy unit fills and the sums of a
//   product
//     hold NaN until the wait. Copies read their source, and products their operands, as late as a GPU may.
//   - A buffer that is filled again while it is still being read: it holds NaN as soon as the new copy starts.
//   - A wrong layout: operands are decoded from the instruction's descriptor, tiles are swizzled by address.
//   - Too few or too many arrivals or bytes at a barrier, a barrier used before its initialization or overwritten, and waits that never
//   end.
//   - Addresses and strides that are not aligned as the instructions require.
//   - Products that not all threads of a warpgroup compute in the same way, and products without fence_products().
// It does not detect missing proxy fences (fence_for_copies), and it ignores cache hints and the number of registers.
#include <cstddef>
#include <cstdint>

#include "kernels/device/hopper_layout.h"

namespace tessera::kernels::emulation {

/// Returns the address of a pointer into the dynamic shared memory, as an instruction would use it.
std::uint32_t shared_address(const void* pointer);

void start_barrier(std::uint64_t* barrier, unsigned arrivals);
/// Arrives, and announces `bytes` bytes of copies.
void arrive(std::uint64_t* barrier, unsigned bytes);
void wait(std::uint64_t* barrier, unsigned parity);

/// `at` is the column, row, head and batch of the box's first element.
void load_tile(void* to, const TileSource& source, int box_rows, std::uint64_t* barrier, const int (&at)[4]);
void store_tile(const TileSource& target, int box_rows, const void* from, const int (&at)[4]);
void commit_stores();
void wait_for_stores(int groups_left);

/// Arrives at the barrier `id` of `threads` threads, and waits for the others if `waits` is true.
void named_barrier(unsigned id, unsigned threads, bool waits);

/// A thread's part of a product.
struct Product {
  float* sums;
  int columns;  // N
  bool adds, a_in_registers;
  Depth a_depth, b_depth;
  Operand a, b;
  std::uint32_t words[2][8];  // the thread's two rows of a, if a is in registers
};
void fence_products();
void multiply_later(const Product& product);
void commit_products();
void wait_for_products(int groups_left);

// Called by the emulation (cuda_emulation.cpp).
void start_block(std::size_t threads);
void end_thread();
void end_block();

}  // namespace tessera::kernels::emulation
