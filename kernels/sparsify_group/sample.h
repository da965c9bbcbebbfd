#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/sparsify_group/sparsify_group.h"

namespace tessera::kernels {

/// One image-caption pair in the CPU implementation. The pointers point to the data of this pair. `real_tokens` lists
/// the indices of its real tokens.
struct ForwardSample {
  const SparsifyGroupProblem* problem;
  ConstRows text_tokens;
  ConstRows image_tokens;
  Rows grouped;
  float* row_statistics;
  float* weights;
  const std::int32_t* real_tokens;
  std::int64_t real_count;
  float* scratch;
};

struct BackwardSample {
  const SparsifyGroupProblem* problem;
  ConstRows text_tokens;
  ConstRows image_tokens;
  ConstRows grad_grouped;
  const float* row_statistics;
  Rows grad_text_tokens;
  Rows grad_image_tokens;
  const std::int32_t* real_tokens;
  std::int64_t real_count;
  float* scratch;
};

/// The inner loops of sparsify_group, compiled for one instruction set.
struct SampleKernels {
  std::int64_t (*scratch_floats)(const SparsifyGroupProblem& problem, Pass pass);
  void (*forward)(const ForwardSample& sample);
  void (*backward)(const BackwardSample& sample);
};

extern const SampleKernels kPortableSampleKernels;
#if defined(TESSERA_X86_KERNELS)
extern const SampleKernels kAvx2SampleKernels;
extern const SampleKernels kAvx512SampleKernels;
#endif

}  // namespace tessera::kernels
