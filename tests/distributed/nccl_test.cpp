// Runs with one rank, because NCCL cannot connect two ranks on the same GPU. Skipped without a GPU.
#include <future>

#include <unistd.h>

#include "tests/distributed/group_case.h"
#include "tests/support/contains.h"
#include "tests/support/test_name.h"
#include <tessera/distributed/spawn.h>

namespace tessera {
namespace {

INSTANTIATE_TEST_SUITE_P(Over, Ranks, testing::Values(GroupCase{1, "nccl"}), test_name<GroupCase>);

TEST(Nccl, GroupsShutDownCleanlyWithWorkInFlight) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  testing::internal::CaptureStderr();
  at::Tensor x = at::ones({1 << 24}, at::Device(at::kCUDA, 0));
  for (int i = 0; i < 2; ++i) {
    const ProcessGroup group = nccl_group();
    EXPECT_EQ(group.backend(), "nccl");
    EXPECT_FALSE(group.alone());
    for (int k = 0; k < 20; ++k) group.all_reduce(x);
  }
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_FALSE(contains(said, "destroy"));  // c10d warns if a group was not shut down
  EXPECT_EQ(x.sum().item<double>(), 1 << 24);
}

TEST(GlooOnAGpu, PassesTensorsAroundTheRing) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  const ReservedPort port;
  const auto received_by = [&](int rank) {
    const at::Device gpu(at::kCUDA, 0);
    const ProcessGroup group = ProcessGroup::connect(
        {.rank = rank, .size = 2, .address = "127.0.0.1", .port = port.number(), .socket = rank == 0 ? ::dup(port.socket()) : -1},
        {.backend = "gloo", .timeout = 60}, gpu);
    const at::Tensor own = at::full({3}, 1.0 + rank, gpu), received = at::zeros_like(own);
    group.pass_on(own, received).wait();
    return received.sum().item<double>();
  };
  std::future<double> first = std::async(std::launch::async, received_by, 0), second = std::async(std::launch::async, received_by, 1);
  EXPECT_EQ(first.get(), 6);
  EXPECT_EQ(second.get(), 3);
}

}  // namespace
}  // namespace tessera
