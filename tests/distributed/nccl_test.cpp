// Runs with one rank, because NCCL cannot connect two ranks on the same GPU. Skipped without a GPU.
#include "tests/distributed/group_case.h"
#include "tests/support/contains.h"
#include "tests/support/test_name.h"

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

}  // namespace
}  // namespace tessera
