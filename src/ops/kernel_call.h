#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/parallel.h"
#include "kernels/status.h"
#include "kernels/types.h"

/// What calls of kernels/ from LibTorch have in common.
namespace tessera {

/// LibTorch's own thread pool (tessera/ops/thread_pool.h), as kernels take it.
kernels::Parallel torch_threads();

/// The current stream of the tensor's device as the kernels take it; null on the CPU.
void* current_stream(const at::Tensor& tensor);

/// Throws c10::Error with the kernel's message.
void check_status(const kernels::Status& status);

/// float32 or bfloat16; the caller has seen to it.
kernels::DataType kernel_type(const at::Tensor& tensor);

/// Whether tensors of this device have kernels in this build. Meta tensors stand for those that have.
bool has_kernels(const at::Tensor& tensor);

/// Scratch memory from LibTorch's allocator; data_ptr() is null for 0 bytes.
at::Tensor workspace(std::size_t bytes, const at::Tensor& like);

/// [B, N, D] or [N, D] with the last dimension contiguous.
at::Tensor contiguous_rows(const at::Tensor& tensor);

inline const std::uint8_t* mask_bytes(const at::Tensor& mask) {
  return reinterpret_cast<const std::uint8_t*>(mask.const_data_ptr<bool>());
}

}  // namespace tessera
