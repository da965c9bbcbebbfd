#pragma once

#include <optional>
#include <tuple>

#include <ATen/core/Tensor.h>

#include "src/ops/tuning.h"

namespace torch {
class Library;
}

/// Declarations that the operator (sparsify_group.cpp) and its fused form (sparsify_group_fused.cpp) share.
namespace tessera {

/// If a tensor does not fit, throws a c10::Error that names this tensor. Uses only sym_size(), so that tracing with symbolic sizes works.
void check_sparsify_group(const at::Tensor& text_tokens, const at::Tensor& image_tokens, const at::Tensor& text_mask);

/// Calls torch.ops.tessera._sparsify_group, with autograd, and returns (grouped, row statistics) from the kernels. Both
/// token tensors must have the same type, float32 or bfloat16. With `tf32`, float32 is multiplied in TensorFloat-32 on a GPU.
std::tuple<at::Tensor, at::Tensor> fused_sparsify_group(const at::Tensor& text_tokens, const at::Tensor& image_tokens,
                                                        const at::Tensor& text_mask, bool softmax,
                                                        std::optional<double> threshold, double softmax_temperature, bool tf32);

/// What the choice of the GPU kernel's configuration depends on: whole tiles of 16 tokens and of 16 patches, which decide whether a
/// configuration fits into a block's shared memory.
TuningKey sparsify_group_tuning_key(kernels::Pass pass, at::ScalarType type, std::int64_t tokens, std::int64_t patches);

void define_fused_sparsify_group(torch::Library& library);

}  // namespace tessera
