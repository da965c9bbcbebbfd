// On one GPU: NCCL has no way between two ranks on the same one. Without a GPU all of it is skipped.
#include "tests/distributed/group_case.h"
#include "tests/support/test_name.h"

namespace tessera {
namespace {

INSTANTIATE_TEST_SUITE_P(Over, Ranks, testing::Values(GroupCase{1, "nccl"}), test_name<GroupCase>);

TEST(Nccl, GroupsEndInOrderWithWorkStillUnderWay) {
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
  EXPECT_EQ(said.find("destroy"), std::string::npos) << said;  // what c10d warns of where nobody shut down
  EXPECT_EQ(x.sum().item<double>(), 1 << 24);
}

}  // namespace
}  // namespace tessera
