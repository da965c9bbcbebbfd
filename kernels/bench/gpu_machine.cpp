#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <vector>

#include "kernels/bench/machine.h"

namespace tessera::kernels::bench {
namespace {

void require(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "kernels_bench: %s\n", cudaGetErrorString(error));
  std::exit(1);
}

class GpuMachine : public Machine {
 public:
  GpuMachine() : host_(cpu_machine(1)) {
    require(cudaEventCreate(&start_));
    require(cudaEventCreate(&stop_));
  }
  ~GpuMachine() override {
    release();
    cudaEventDestroy(start_);
    cudaEventDestroy(stop_);
  }
  std::string name() const override {
    cudaDeviceProp properties;
    require(cudaGetDeviceProperties(&properties, 0));
    return properties.name;
  }
  void* random(std::size_t bytes, DataType type) override {
    constexpr std::size_t kPattern = std::size_t{1} << 22;  // repeated: the host's generator is slow
    char* memory = nullptr;
    require(cudaMalloc(reinterpret_cast<void**>(&memory), std::max<std::size_t>(bytes, 1)));
    const void* const pattern = host_->random(kPattern, type);
    for (std::size_t done = 0; done < bytes; done += kPattern) {
      require(cudaMemcpy(memory + done, pattern, std::min(kPattern, bytes - done), cudaMemcpyHostToDevice));
    }
    host_->release();
    memories_.push_back(memory);
    return memory;
  }
  void release() override {
    for (void* memory : memories_) cudaFree(memory);
    memories_.clear();
  }
  double seconds(const std::function<Status()>& call) override {
    std::vector<float> times;
    for (int i = 0; i < 25; ++i) {
      require(cudaEventRecord(start_));
      if (const Status status = call(); !status.ok()) {
        std::fprintf(stderr, "kernels_bench: %s\n", status.message().c_str());
        return -1.0;
      }
      require(cudaEventRecord(stop_));
      require(cudaEventSynchronize(stop_));
      float milliseconds = 0.0f;
      require(cudaEventElapsedTime(&milliseconds, start_, stop_));
      times.push_back(milliseconds);
    }
    std::sort(times.begin() + 5, times.end());  // the first five warm up
    return times[15] * 1e-3;
  }
  double copy_bandwidth() override {
    constexpr std::size_t kBytes = std::size_t{1} << 31;
    void* const from = random(kBytes, DataType::kFloat32);
    void* const to = random(kBytes, DataType::kFloat32);
    const double time = seconds([&] {
      require(cudaMemcpyAsync(to, from, kBytes, cudaMemcpyDeviceToDevice));
      return Status();
    });
    release();
    return 2.0 * kBytes / time;
  }
  std::size_t workspace(const SparsifyGroupProblem& problem, Pass pass) override {
    return cuda::sparsify_group_workspace(problem, pass);
  }
  Status run(const SparsifyGroupForward& arguments) override {
    return cuda::sparsify_group_forward(arguments, nullptr);
  }
  Status run(const SparsifyGroupBackward& arguments) override {
    return cuda::sparsify_group_backward(arguments, nullptr);
  }
  std::size_t workspace(std::int64_t rows, std::int64_t columns) override {
    return cuda::flops_workspace(rows, columns);
  }
  Status run(const FlopsColumnSums& arguments) override { return cuda::flops_column_sums(arguments, nullptr); }
  Status run(const FlopsFromSums& arguments) override { return cuda::flops_from_sums(arguments, nullptr); }
  Status run(const FlopsBackward& arguments) override { return cuda::flops_backward(arguments, nullptr); }

 private:
  std::unique_ptr<Machine> host_;
  cudaEvent_t start_, stop_;
  std::vector<void*> memories_;
};

}  // namespace

std::unique_ptr<Machine> gpu_machine() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return nullptr;
  return std::make_unique<GpuMachine>();
}

}  // namespace tessera::kernels::bench
