#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/types.h"

namespace tessera::kernels {
namespace {  // each instruction set has its own copy; see cpu/matrix.inc.h

/// A row is flat if its range is at most this share of its largest magnitude.
constexpr float kFlatRow = 1e-6f;

TESSERA_HOST_DEVICE inline float next_float(float value, std::int32_t step) {
  std::int32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  bits += step;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

/// Returns the smallest x >= 0 with float(x / range) >= threshold. The test `x >= kept_from(range, threshold)` then
/// gives exactly the same result as the division, including rounding and equality, but needs no division per patch.
/// threshold is in [0, 1].
TESSERA_HOST_DEVICE inline float kept_from(float range, float threshold) {
  if (!(range > 0.0f && range <= 3.4028235e38f) || threshold <= 0.0f) return 0.0f;
  float cut = threshold * range;
  while (cut / range < threshold) cut = next_float(cut, 1);
  while (cut > 0.0f && next_float(cut, -1) / range >= threshold) cut = next_float(cut, -1);
  return cut;
}

}  // namespace
}  // namespace tessera::kernels
