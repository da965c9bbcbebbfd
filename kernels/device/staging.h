#pragma once

// Copies a tile from global to shared memory while the previous tile is being multiplied.
#include "kernels/device/fragments.h"

namespace tessera::kernels {
namespace {

/// The layout of a tile in shared memory for products that sum over the width of the embeddings. Its rows have 64 bytes and start 80 bytes
/// apart, so that eight rows are on different banks.
template <class Element>
struct WidthStage {
  static constexpr int kDepth = 64 / static_cast<int>(sizeof(Element));
  static constexpr int kPitch = 80 / static_cast<int>(sizeof(Element));
};
/// Starts copying `rows` rows into shared memory, from column column0 on. A row has `vectors` pieces of 16 bytes.
/// Writes zeros for columns past `width`, and for rows for which valid(row) is false. If `aligned` is false, copies
/// synchronously, element by element.
template <int kThreads, class Element, class Valid>
__device__ __forceinline__ void stage(Element* to, int pitch, int rows, int vectors, const Element* from,
                                      std::int64_t row_stride, int column0, int width, bool aligned, Valid valid) {
  constexpr int kPerVector = 16 / static_cast<int>(sizeof(Element));
#pragma unroll 1  // unrolling would need registers for addresses and spill the sums
  for (int i = threadIdx.x; i < rows * vectors; i += kThreads) {
    const int row = i / vectors, offset = i % vectors * kPerVector, column = column0 + offset;
    const bool real = valid(row);
    Element* const target = to + row * pitch + offset;
    const Element* const source = from + row * row_stride + column;
    if (aligned) {
      const bool copies = real && column < width;
      copy_async(target, copies ? source : from, copies);
    } else {
      for (int e = 0; e < kPerVector; ++e) {
        target[e] = real && column + e < width ? source[e] : from_float<Element>(0.0f);
      }
    }
  }
}

/// Runs `steps` steps with two buffers. load(step, buffer) fills one buffer while compute(step, buffer) works on the
/// other. There is a barrier before and after each compute().
template <class Load, class Compute>
__device__ __forceinline__ void pipeline(int steps, Load load, Compute compute) {
  load(0, 0);
  commit_copies();
  for (int step = 0; step < steps; ++step) {
    if (step + 1 < steps) {
      load(step + 1, (step + 1) % 2);
      commit_copies();
      wait_for_copies<1>();
    } else {
      wait_for_copies<0>();
    }
    __syncthreads();
    compute(step, step % 2);
    __syncthreads();
  }
}

__device__ __forceinline__ int rounded_up(int value, int multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace
}  // namespace tessera::kernels
