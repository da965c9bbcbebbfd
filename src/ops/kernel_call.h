#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/parallel.h"
#include "kernels/status.h"
#include "kernels/types.h"

/// Shared code for calls from LibTorch into kernels/.
namespace tessera {

/// LibTorch's own thread pool (src/ops/thread_pool.h), in the form that kernels take.
kernels::Parallel torch_threads();

/// Returns the current stream of the tensor's device in the form that kernels take; null on the CPU.
void* current_stream(const at::Tensor& tensor);

/// Throws c10::Error with the message of the status if the kernel failed.
void check_status(const kernels::Status& status);

/// Returns the type of a tensor, which must be float32 or bfloat16.
kernels::DataType kernel_type(const at::Tensor& tensor);

/// Whether this build has kernels for the tensor's device, and a block of this device can use `block_memory` bytes of shared memory (only
/// on GPUs). Returns true for meta tensors.
bool has_kernels(const at::Tensor& tensor, std::size_t block_memory = 0);

/// The same for operators with kernels for float32 and, except on the CPU, for bfloat16: false for tensors of other types.
bool has_kernels_for_type(const at::Tensor& tensor, std::size_t block_memory = 0);

/// Returns scratch memory from LibTorch's allocator; its data_ptr() is null for 0 bytes.
at::Tensor workspace(std::size_t bytes, const at::Tensor& like);

/// Returns the tensor, [B, N, D] or [N, D], with a contiguous last dimension.
at::Tensor contiguous_rows(const at::Tensor& tensor);

inline const std::uint8_t* mask_bytes(const at::Tensor& mask) {
  return reinterpret_cast<const std::uint8_t*>(mask.const_data_ptr<bool>());
}

}  // namespace tessera
