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
  ~DeviceBuffer() override { cudaFree(memory_); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  void* data() override { return memory_ + kMargin; }
  std::vector<unsigned char> read() override { return copy(kMargin, size_); }
  bool margins_intact() override {
    const auto is_margin = [](unsigned char byte) { return byte == kMarginByte; };
    const auto before = copy(0, kMargin), after = copy(kMargin + size_, kMargin);
    return std::all_of(before.begin(), before.end(), is_margin) && std::all_of(after.begin(), after.end(), is_margin);
  }

 private:
  std::vector<unsigned char> copy(std::size_t offset, std::size_t size) const {
    std::vector<unsigned char> result(size);
    require(cudaMemcpy(result.data(), memory_ + offset, size, cudaMemcpyDeviceToHost));
    return result;
  }
  std::size_t size_;
  unsigned char* memory_ = nullptr;
};

/// Returns the status of the launch, or the error of the kernel itself.
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
  result->sparsify_group_workspace = [](const auto& p, Pass pass) { return cuda::sparsify_group_workspace(p, pass); };
  result->sparsify_group_forward = [](const auto& a) { return finished(cuda::sparsify_group_forward(a, nullptr)); };
  result->sparsify_group_backward = [](const auto& a) { return finished(cuda::sparsify_group_backward(a, nullptr)); };
  result->flops_workspace = [](auto rows, auto columns) { return cuda::flops_workspace(rows, columns); };
  result->flops_column_sums = [](const auto& a) { return finished(cuda::flops_column_sums(a, nullptr)); };
  result->flops_from_sums = [](const auto& a) { return finished(cuda::flops_from_sums(a, nullptr)); };
  result->flops_backward = [](const auto& a) { return finished(cuda::flops_backward(a, nullptr)); };
  result->cross_entropy_tile = [](const auto& a) { return finished(cuda::cross_entropy_tile(a, nullptr)); };
  result->max_similarity_workspace = [](const auto& p, Pass pass) { return cuda::max_similarity_workspace(p, pass); };
  result->max_similarity_forward = [](const auto& a) { return finished(cuda::max_similarity_forward(a, nullptr)); };
  result->max_similarity_backward = [](const auto& a) { return finished(cuda::max_similarity_backward(a, nullptr)); };
  result->patch_softmax = [](const auto& a) { return finished(cuda::patch_softmax(a, nullptr)); };
  result->patch_softmax_backward = [](const auto& a) { return finished(cuda::patch_softmax_backward(a, nullptr)); };
  result->pooled_pairs = [](const auto& a) { return finished(cuda::pooled_pairs(a, nullptr)); };
  result->roi_align_forward = [](const auto& a) { return finished(cuda::roi_align_forward(a, nullptr)); };
  result->roi_align_backward = [](const auto& a) { return finished(cuda::roi_align_backward(a, nullptr)); };
  result->token_max_projection_forward = [](const auto& a) {
    return finished(cuda::token_max_projection_forward(a, nullptr));
  };
  result->token_max_projection_backward = [](const auto& a) {
    return finished(cuda::token_max_projection_backward(a, nullptr));
  };
  return result;
}

}  // namespace tessera::kernels::test
