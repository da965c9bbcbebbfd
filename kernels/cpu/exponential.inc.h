// The exponential function of vectors, for one instruction set. cpu/matrix.inc.h explains what the including source must define.
#include "kernels/cpu/matrix.inc.h"

namespace tessera::kernels {
namespace {

/// Returns exp(x) for x <= 0, within 2 units in the last place. Returns 0 if x is below the logarithm of the smallest
/// normal number, and NaN if x is NaN. Splits x into n log(2) + r with |r| <= log(2) / 2. Computes exp(r) by its
/// series, and 2^n by setting the bits of a float's exponent.
inline Vector exponential(Vector x) {
  constexpr float kLeast = -87.3365f;
  constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23; adding kRounder rounds a number to an integer, which is in the sum's lowest bits
  const IntVector vanishes = x < kLeast;
  x = select(vanishes, broadcast(kLeast), x);
  const Vector shifted = x * 1.44269504f + kRounder;  // log2(e)
  const Vector n = shifted - kRounder;
  const Vector r = (x - n * 0.693145752f) - n * 1.42860677e-6f;  // subtracts log(2) in two parts; n times the first part is exact
  Vector sum = broadcast(1.0f / 5040);
  sum = sum * r + 1.0f / 720;
  sum = sum * r + 1.0f / 120;
  sum = sum * r + 1.0f / 24;
  sum = sum * r + 1.0f / 6;
  sum = sum * r + 0.5f;
  sum = sum * r + 1.0f;
  sum = sum * r + 1.0f;
  const IntVector power = (reinterpret_cast<IntVector>(shifted) << 23) + (127 << 23);
  return select(vanishes, Vector{}, sum * reinterpret_cast<Vector>(power));
}

}  // namespace
}  // namespace tessera::kernels
