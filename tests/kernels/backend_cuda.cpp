#include <algorithm>
#include <cuda_runtime.h>

#include <gtest/gtest.h>

#include "tests/kernels/backend.h"

namespace tessera::kernels::test {
namespace {

constexpr std::size_t kMargin = 256;
constexpr unsigned char kMarginByte = 0xa5;

void require(cudaError_t error) {
  if (error == cudaSuccess) return;
  ADD_FAILURE() << cudaGetErrorString(error);
}

class DeviceBuffer : public Buffer {
 public:
  explicit DeviceBuffer(const std::vector<unsigned char>& content) : size_(content.size()) {
    require(cudaMalloc(reinterpret_cast<void**>(&memory_), size_ + 2 * kMargin));
    require(cudaMemset(memory_, kMarginByte, size_ + 2 * kMargin));
    require(cudaMemcpy(memory_ + kMargin, content.data(), size_, cudaMemcpyHostToDevice));
  }
  ~DeviceBuffer() override {
    EXPECT_TRUE(margins_intact());
    cudaFree(memory_);
  }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  void* data() override { return memory_ + kMargin; }
  std::vector<unsigned char> read() override { return copy(kMargin, size_); }

 private:
  bool margins_intact() const {
    const auto is_margin = [](unsigned char byte) { return byte == kMarginByte; };
    const auto before = copy(0, kMargin), after = copy(kMargin + size_, kMargin);
    return std::all_of(before.begin(), before.end(), is_margin) && std::all_of(after.begin(), after.end(), is_margin);
  }
  std::vector<unsigned char> copy(std::size_t offset, std::size_t size) const {
    std::vector<unsigned char> result(size);
    require(cudaMemcpy(result.data(), memory_ + offset, size, cudaMemcpyDeviceToHost));
    return result;
  }
  std::size_t size_;
  unsigned char* memory_ = nullptr;
};

/// Waits for a launched kernel. Returns the status of the launch if it failed, otherwise the status of the kernel.
Status finished(Status launched) {
  if (!launched.ok()) return launched;
  const cudaError_t error = cudaDeviceSynchronize();
  return error == cudaSuccess ? Status() : Status::failure(cudaGetErrorString(error));
}

}  // namespace

std::unique_ptr<Backend> cuda_backend() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return nullptr;
  auto result = std::make_unique<Backend>();
  result->name = "cuda";
  result->rounds_weights = true;
  result->allocate = [](const auto& content) { return std::make_unique<DeviceBuffer>(content); };
  const auto launched = [](auto kernel) {
    return [=](const auto& arguments) { return finished(kernel(arguments, nullptr)); };
  };
  result->adamw_update = launched(cuda::adamw_update);
  result->attention_forward = launched(cuda::attention_forward);
  result->attention_backward = launched(cuda::attention_backward);
  result->sparsify_group_workspace = cuda::sparsify_group_workspace;
  result->sparsify_group_forward = launched(cuda::sparsify_group_forward);
  result->sparsify_group_backward = launched(cuda::sparsify_group_backward);
  result->flops_workspace = cuda::flops_workspace;
  result->flops_forward = launched(cuda::flops_forward);
  result->flops_backward = launched(cuda::flops_backward);
  result->cross_entropy_tile = launched(cuda::cross_entropy_tile);
  result->max_similarity_workspace = cuda::max_similarity_workspace;
  result->max_similarity_forward = launched(cuda::max_similarity_forward);
  result->max_similarity_backward = launched(cuda::max_similarity_backward);
  result->patch_softmax = launched(cuda::patch_softmax);
  result->patch_softmax_backward = launched(cuda::patch_softmax_backward);
  result->pooled_pairs = launched(cuda::pooled_pairs);
  result->activation_workspace = cuda::activation_workspace;
  result->activation_forward = launched(cuda::activation_forward);
  result->activation_backward = launched(cuda::activation_backward);
  result->residual_norm_workspace = cuda::residual_norm_workspace;
  result->residual_norm_forward = launched(cuda::residual_norm_forward);
  result->residual_norm_backward = launched(cuda::residual_norm_backward);
  result->roi_align_forward = launched(cuda::roi_align_forward);
  result->roi_align_backward = launched(cuda::roi_align_backward);
  result->token_contrast_forward = launched(cuda::token_contrast_forward);
  result->token_contrast_backward = launched(cuda::token_contrast_backward);
  result->token_max_projection_forward = launched(cuda::token_max_projection_forward);
  result->token_max_projection_backward = launched(cuda::token_max_projection_backward);
  return result;
}

}  // namespace tessera::kernels::test
