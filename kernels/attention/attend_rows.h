#pragma once

#include <cstdint>

namespace tessera::kernels {

/// Queries, keys and values of one sequence and head, float32. Rows are `stride` floats apart, and those of the output `output_stride`.
struct HeadRows {
  const float *query, *key, *value;
  float* output;
  std::int64_t stride, output_stride;
  std::int64_t tokens, width;
  bool causal;
  float scale;
};

/// The attention of one sequence and head, compiled for one instruction set.
struct HeadKernels {
  /// Floats of scratch memory for sequences of up to `tokens` tokens.
  std::int64_t (*scratch)(std::int64_t tokens, std::int64_t width);
  void (*attend)(const HeadRows& rows, float* scratch);
};

#if defined(TESSERA_X86_KERNELS)
extern const HeadKernels kAvx2HeadKernels;
extern const HeadKernels kAvx512HeadKernels;
#endif

}  // namespace tessera::kernels
