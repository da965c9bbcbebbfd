#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace tessera {

/// Returns the value at `step` of a half-cosine schedule from `start` at step 0 to `end` at step `steps`, constant afterwards:
/// end + (start - end) (1 + cos(pi step / steps)) / 2.
inline double half_cosine(std::int64_t step, std::int64_t steps, double start, double end) {
  const double x = step < steps ? static_cast<double>(step) / static_cast<double>(steps) : 1.0;
  return end + (start - end) * ((1.0 + std::cos(std::numbers::pi * x)) / 2.0);
}

}  // namespace tessera
