#pragma once

#include <cstdint>

namespace tessera::kernels {

/// The inner loops of linear_cross_entropy, compiled for one instruction set.
struct SoftmaxRow {
  /// Returns log(sum of exp(logits)) of `columns` (at least 1) logits. If `softmax` is not null, also writes
  /// exp(logits) / (sum of exp(logits)) * scale to it. `softmax` may point to `logits`, which is then overwritten.
  float (*log_sum_exp)(const float* logits, std::int64_t columns, float* softmax, float scale);
};

extern const SoftmaxRow kPortableSoftmaxRow;
#if defined(TESSERA_X86_KERNELS)
extern const SoftmaxRow kAvx2SoftmaxRow;
extern const SoftmaxRow kAvx512SoftmaxRow;
#endif

}  // namespace tessera::kernels
