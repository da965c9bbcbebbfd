#pragma once

#include <cstdint>

namespace tessera::kernels {

/// The inner loops of linear_cross_entropy, compiled for one instruction set.
struct SoftmaxRow {
  /// Returns log(sum over i of exp(logits[i])). The row has `columns` logits, at least 1. If `softmax` is not null, sets
  /// softmax[i] = scale * exp(logits[i]) / (sum over j of exp(logits[j])). `softmax` may point to `logits`, which is then overwritten.
  float (*log_sum_exp)(const float* logits, std::int64_t columns, float* softmax, float scale);
};

extern const SoftmaxRow kPortableSoftmaxRow;
#if defined(TESSERA_X86_KERNELS)
extern const SoftmaxRow kAvx2SoftmaxRow;
extern const SoftmaxRow kAvx512SoftmaxRow;
#endif

}  // namespace tessera::kernels
