
#include <limits>

#include <gtest/gtest.h>

#include "src/base/machine_memory.h"
#include "src/measure/machine.h"
#include "tests/support/temporary_folder.h"

namespace tessera {
namespace {

double peak(std::string_view gpu, Arithmetic arithmetic = Arithmetic::bfloat16) {
  return known_peak_tflops(gpu, arithmetic).value_or(0);
}

TEST(PeakFlops, GpusAreRecognizedByTheNameFromTheDriver) {
  EXPECT_EQ(peak("NVIDIA A100-SXM4-80GB"), 312);
  EXPECT_EQ(peak("NVIDIA A100 80GB PCIe"), 312);
  EXPECT_EQ(peak("NVIDIA H100 80GB HBM3"), 989.4);
  EXPECT_EQ(peak("NVIDIA H100 PCIe"), 756);
  EXPECT_EQ(peak("NVIDIA H100 NVL"), 835.5);
  EXPECT_EQ(peak("NVIDIA H200"), 989.4);
  EXPECT_EQ(peak("NVIDIA GH200 480GB"), 989.4);
  EXPECT_EQ(peak("NVIDIA A10"), 125);
  EXPECT_EQ(peak("NVIDIA A10G"), 70);
  EXPECT_EQ(peak("NVIDIA L4"), 121);
  EXPECT_EQ(peak("NVIDIA L40"), 181);
  EXPECT_EQ(peak("NVIDIA L40S"), 362);
  EXPECT_EQ(peak("NVIDIA RTX A6000"), 154.8);
  EXPECT_EQ(peak("NVIDIA RTX 6000 Ada Generation"), 364.2);
}

TEST(PeakFlops, DependsOnTheArithmetic) {
  EXPECT_EQ(peak("NVIDIA A100-SXM4-40GB", Arithmetic::tf32), 156);
  EXPECT_EQ(peak("NVIDIA A100-SXM4-40GB", Arithmetic::float32), 19.5);
  EXPECT_EQ(peak("Tesla V100-SXM2-16GB", Arithmetic::float16), 125);
  EXPECT_EQ(peak("Tesla V100-PCIE-16GB", Arithmetic::float16), 112);
  EXPECT_EQ(peak("Tesla V100-SXM2-16GB", Arithmetic::bfloat16), 0) << "the V100 has no units for bfloat16";
  EXPECT_EQ(peak("Tesla T4", Arithmetic::tf32), 8.1) << "the T4 computes TF32 as float32";
}

TEST(PeakFlops, OtherGpusAreUnknown) {
  EXPECT_EQ(peak("NVIDIA A1000"), 0);
  EXPECT_EQ(peak("Some GPU"), 0);
  EXPECT_EQ(peak("NVIDIA H100 80GB HBM3 MIG 1g.10gb"), 0) << "a MIG instance is only part of a GPU";
  EXPECT_EQ(peak("NVIDIA GeForce RTX 4090 Laptop GPU"), 0);
}

TEST(PeakFlops, IsMeasuredOnACpu) {
  const PeakFlops cpu = peak_flops(at::kCPU, Arithmetic::float32);
  EXPECT_TRUE(cpu.measured);
  EXPECT_GT(cpu.flops, 1e8);
  EXPECT_TRUE(cpu.origin.starts_with("a product of 1024 x 1024 matrices on ")) << cpu.origin;
}

TEST(MemoryUse, ReportsResidentMemoryAndItsPeak) {
  const MemoryUse use = memory_use(at::kCPU);
  EXPECT_GT(use.resident, 1 << 20);
  EXPECT_GE(use.resident_peak, use.resident);
  EXPECT_FALSE(use.device_peak);
}

using AvailableMemory = FolderTest;

TEST_F(AvailableMemory, IsLimitedByEveryControlGroupAroundTheProcessButNotByItsCache) {
  const auto left = [&] { return left_in_control_groups(path("list"), path("tree")); };
  const auto limit = [&] { return left_in_control_groups(path("list"), path("tree"), /*whole=*/true); };
  write("list", "0::/job/step\n");
  write("tree/job/step/memory.max", "max\n");
  EXPECT_EQ(left(), std::numeric_limits<std::int64_t>::max());
  write("tree/job/memory.max", "1000\n");
  write("tree/job/memory.current", "900\n");
  write("tree/job/memory.stat", "anon 300\ninactive_file 500\n");
  EXPECT_EQ(left(), 600);
  EXPECT_EQ(limit(), 1000);
  write("list", "4:cpu,memory:/job\n3:cpuset:/\n0::/\n");
  write("tree/memory/job/memory.limit_in_bytes", "800\n");
  write("tree/memory/job/memory.usage_in_bytes", "700\n");
  write("tree/memory/job/memory.stat", "total_inactive_file 100\n");
  EXPECT_EQ(left(), 200);
  EXPECT_EQ(limit(), 800);
}

}  // namespace
}  // namespace tessera
