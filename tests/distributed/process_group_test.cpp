#include "tests/distributed/group_case.h"
#include "tests/support/test_name.h"
#include <tessera/distributed/collectives.h>

namespace tessera {
namespace {

// If a backend is named, even a group of one rank opens a connection and uses it for collectives, as larger groups do.
INSTANTIATE_TEST_SUITE_P(Over, Ranks,
                         testing::Values(GroupCase{1, "gloo"}, GroupCase{2, "gloo"}, GroupCase{3, "gloo"},
                                         GroupCase{4, "gloo"}),
                         test_name<GroupCase>);

TEST(ProcessGroup, OneRankIsAloneUnlessABackendIsSet) {
  for (const std::string named : {"auto", "gloo"}) {
    run_ranks(
        1,
        [&](const ProcessGroup& group) -> Tensors {
          EXPECT_EQ(group.alone(), named == "auto");
          EXPECT_EQ(group.size(), 1);
          EXPECT_EQ(group.backend(), named == "auto" ? "none" : named);
          return {};
        },
        named);
  }
}

TEST(ProcessGroupAlone, CollectivesDoNothing) {
  const ProcessGroup alone;
  at::Tensor x = at::arange(3.0);
  EXPECT_TRUE(alone.all_gather(x).is_same(x));
  EXPECT_TRUE(gather_rows(x, alone).is_same(x));
  alone.all_reduce(x);
  EXPECT_EQ(x[2].item<double>(), 2);
  EXPECT_EQ(alone.broadcast_text("a"), "a");
  EXPECT_EQ(alone.backend(), "none");
}

}  // namespace
}  // namespace tessera
