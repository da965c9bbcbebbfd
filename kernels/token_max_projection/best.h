#pragma once

// The best position of an entry, for the kernels of the forward pass.
#include "kernels/device/primitives.h"

namespace tessera::kernels {
namespace {

/// A maximum and its position, which is -1 if there is no maximum yet.
struct Best {
  float value;
  int position;
};

/// Returns whether `a` is a better maximum than `b`. NaN is better than any number, and a greater number is better than a
/// smaller one. If the values are equal, the lower position is better.
__device__ __forceinline__ bool before(const Best& a, const Best& b) {
  if (a.position < 0 || b.position < 0) return a.position >= 0;
  const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
  if (a_nan != b_nan) return a_nan;
  if (!a_nan && a.value != b.value) return a.value > b.value;
  return a.position < b.position;
}

/// Writes an entry of the encoding and its argmax at `place`.
__device__ __forceinline__ void write_best(const Best& best, float bias, std::int64_t place, float* encoding, std::int64_t* argmax) {
  const float maximum = best.position < 0 ? 0.0f : best.value + bias;
  encoding[place] = maximum <= 0.0f ? 0.0f : log1pf(maximum);  // NaN stays NaN
  argmax[place] = best.position;
}

}  // namespace
}  // namespace tessera::kernels
