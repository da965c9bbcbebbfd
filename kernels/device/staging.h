#pragma once

// Copies tiles from global to shared memory while the previous ones are multiplied.
#include "kernels/device/fragments.h"

namespace tessera::kernels {
namespace {

/// Rows of 64 bytes for products along the width; the pitch of 80 bytes puts eight rows on different banks.
template <class Element>
struct WidthStage {
  static constexpr int kDepth = 64 / static_cast<int>(sizeof(Element));
  static constexpr int kPitch = 80 / static_cast<int>(sizeof(Element));
};
/// Starts copying columns column0 .. of `rows` rows into shared memory, with zeros where the row is not `valid(row)` or
/// past `width`. `vectors` is the number of 16-byte pieces per row. If not `aligned`, it copies synchronously, element
/// by element.
template <int kThreads, class Element, class Valid>
__device__ __forceinline__ void stage(Element* to, int pitch, int rows, int vectors, const Element* from,
                                      std::int64_t row_stride, int column0, int width, bool aligned, Valid valid) {
  constexpr int kPerVector = 16 / static_cast<int>(sizeof(Element));
#pragma unroll 1  // unrolling it would need registers for addresses and spill the sums
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

/// load(step, buffer) fills one of two buffers while compute(step, buffer) works on the other. Barriers separate this
/// from everything before and after.
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
