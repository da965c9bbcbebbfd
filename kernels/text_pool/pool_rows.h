#pragma once

#include <cstdint>

namespace tessera::kernels {

/// The inner loops of text-conditioned pooling, compiled for one instruction set. Each processes a row of `count`
/// numbers (at least 1).
struct PoolRows {
  /// Replaces each score s by exp(s) / (sum of all exp(s) + z). z is 1 with `zero_token`, and 0 without it.
  void (*softmax)(float* scores, std::int64_t count, bool zero_token);
  /// Replaces each gradient[i] by weights[i] * (gradient[i] - sum over j of weights[j] * gradient[j]).
  void (*softmax_backward)(const float* weights, float* gradient, std::int64_t count);
  /// Computes the sum of x y (`with_other`) and the sum of x x (`with_itself`).
  void (*products)(const float* x, const float* y, std::int64_t count, float* with_other, float* with_itself);
  /// Replaces x by a x + b y, and y by c times the old x.
  void (*combine)(float* x, float* y, std::int64_t count, float a, float b, float c);
};

extern const PoolRows kPortablePoolRows;
#if defined(TESSERA_X86_KERNELS)
extern const PoolRows kAvx2PoolRows;
extern const PoolRows kAvx512PoolRows;
#endif

}  // namespace tessera::kernels
