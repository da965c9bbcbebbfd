// This is the only source that is compiled with OpenMP. It needs OpenMP because at::parallel_for is a template, which
// uses only one thread if compiled without it.
#include "src/ops/kernel_call.h"

#include <omp.h>

#include <algorithm>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "kernels/device/block_memory.h"
#include "src/ops/one_thread.h"
#include "src/ops/thread_pool.h"

namespace tessera {

int pool_threads() {
  return at::in_parallel_region() ? 1 : at::get_num_threads();
}

void run_on_pool(int tasks, const std::function<void(int)>& body) {
  at::parallel_for(0, tasks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t task = begin; task < end; ++task) body(static_cast<int>(task));
  });
}

void stay_on_this_thread() {
  omp_set_num_threads(1);
}

kernels::Parallel torch_threads() {
  return {.threads = pool_threads(), .run = run_on_pool};
}

void* current_stream(const at::Tensor& tensor) {
  if (tensor.device().is_cpu()) return nullptr;
  const c10::impl::VirtualGuardImpl device(tensor.device().type());
  return device.getStream(tensor.device()).native_handle();
}

void check_status(const kernels::Status& status) {
  TORCH_CHECK(status.ok(), status.message());
}

kernels::DataType kernel_type(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBFloat16 ? kernels::DataType::kBfloat16 : kernels::DataType::kFloat32;
}

bool has_kernels(const at::Tensor& tensor, std::size_t block_memory) {
  if (tensor.device().is_cuda())
    return kernels::cuda::block_memory(tensor.device().index()) >= std::max<std::size_t>(1, block_memory);
  return tensor.device().is_cpu() || tensor.device().is_meta();
}

bool has_kernels_for_type(const at::Tensor& tensor, std::size_t block_memory) {
  const bool narrow = tensor.scalar_type() == at::kBFloat16 && !tensor.device().is_cpu();
  return (narrow || tensor.scalar_type() == at::kFloat) && has_kernels(tensor, block_memory);
}

at::Tensor workspace(std::size_t bytes, const at::Tensor& like) {
  return at::empty({static_cast<std::int64_t>(bytes)}, like.options().dtype(at::kByte));
}

at::Tensor contiguous_rows(const at::Tensor& tensor) {
  return tensor.stride(-1) == 1 ? tensor : tensor.contiguous();
}

}  // namespace tessera
