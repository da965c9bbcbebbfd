#pragma once

#include <cstdint>

namespace tessera::kernels {

/// The inner loops of text-conditioned pooling over a row of `count` (at least 1) numbers, compiled for one instruction
/// set.
struct PoolRows {
  /// In place: exp(s) divided by the sum of exp(s), plus 1 in that sum with `zero_token`.
  void (*softmax)(float* scores, std::int64_t count, bool zero_token);
  /// In place: g <- w (g - sum of w g).
  void (*softmax_backward)(const float* weights, float* gradient, std::int64_t count);
  /// Computes the sums of x y and of x x.
  void (*products)(const float* x, const float* y, std::int64_t count, float* with_other, float* with_itself);
  /// Simultaneously x <- a x + b y and y <- c x, both from the old values.
  void (*combine)(float* x, float* y, std::int64_t count, float a, float b, float c);
};

extern const PoolRows kPortablePoolRows;
#if defined(TESSERA_X86_KERNELS)
extern const PoolRows kAvx2PoolRows;
extern const PoolRows kAvx512PoolRows;
#endif

}  // namespace tessera::kernels
