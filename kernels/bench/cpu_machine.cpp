#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/bench/machine.h"

namespace tessera::kernels::bench {
namespace {

class CpuMachine : public Machine {
 public:
  explicit CpuMachine(int threads) { parallel_.threads = thread_count({threads, {}}, 1024); }

  std::string name() const override { return "cpu, " + std::to_string(parallel_.threads) + " threads"; }
  void* random(std::size_t bytes, DataType type) override {
    std::vector<std::uint32_t>& memory = memories_.emplace_back((bytes + 3) / 4);
    std::mt19937 generator(static_cast<unsigned>(memories_.size()));
    std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
    for (std::uint32_t& word : memory) {
      const float value = uniform(generator);
      std::memcpy(&word, &value, sizeof(word));
      if (type == DataType::kBfloat16) word = float_to_bfloat16(value) | float_to_bfloat16(uniform(generator)) << 16;
    }
    return memory.data();
  }
  void release() override { memories_.clear(); }
  double seconds(const std::function<Status()>& call) override {
    std::vector<double> times;
    for (int i = 0; i < 12; ++i) {
      const auto start = std::chrono::steady_clock::now();
      if (const Status status = call(); !status.ok()) return -1.0;
      times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    std::sort(times.begin() + 2, times.end());  // the first two warm up
    return times[7];
  }
  double copy_bandwidth() override {
    constexpr std::size_t kBytes = std::size_t{1} << 28;
    char* const from = static_cast<char*>(random(kBytes, DataType::kFloat32));
    char* const to = static_cast<char*>(random(kBytes, DataType::kFloat32));
    const double time = seconds([&] {
      for_each_item(parallel_, 256, [&](int, std::int64_t i) {
        std::memcpy(to + i * (kBytes / 256), from + i * (kBytes / 256), kBytes / 256);
      });
      return Status();
    });
    release();
    return 2.0 * kBytes / time;
  }
  std::size_t workspace(const SparsifyGroupProblem& problem, Pass pass) override {
    return cpu::sparsify_group_workspace(problem, pass, parallel_);
  }
  Status run(const SparsifyGroupForward& arguments) override {
    return cpu::sparsify_group_forward(arguments, parallel_);
  }
  Status run(const SparsifyGroupBackward& arguments) override {
    return cpu::sparsify_group_backward(arguments, parallel_);
  }
  std::size_t workspace(std::int64_t, std::int64_t) override { return 0; }
  Status run(const FlopsColumnSums& arguments) override { return cpu::flops_column_sums(arguments, parallel_); }
  Status run(const FlopsFromSums& arguments) override { return cpu::flops_from_sums(arguments); }
  Status run(const FlopsBackward& arguments) override { return cpu::flops_backward(arguments, parallel_); }

 private:
  Parallel parallel_;
  std::vector<std::vector<std::uint32_t>> memories_;
};

}  // namespace

std::unique_ptr<Machine> cpu_machine(int threads) {
  return std::make_unique<CpuMachine>(threads);
}

#if !defined(TESSERA_BENCH_CUDA)
std::unique_ptr<Machine> gpu_machine() {
  return nullptr;
}
#endif

}  // namespace tessera::kernels::bench
