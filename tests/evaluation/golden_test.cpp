#include "tests/support/golden.h"

#include <gtest/gtest.h>

#include "tests/support/test_data.h"

namespace tessera {
namespace {

TEST(MetricsGolden, EveryReferenceCaseAgrees) {
  const probe::Runners runners = probe::core_runners();
  const std::vector<std::string> files = probe::case_files(test_data("golden/metrics"));
  EXPECT_EQ(files.size(), 32U);
  for (const std::string& file : files) {
    const probe::CaseReport report = probe::run_file(file, runners);
    EXPECT_TRUE(report.agrees()) << file << "\n" << report.failure << "\n" << probe::format_table(report);
  }
}

TEST(SparsityGolden, Agrees) {
  for (const std::string& path : golden_cases("stair", "sparsity")) expect_case_agrees(path, probe::core_runners());
}

class GoldenSlots : public ::testing::TestWithParam<std::string> {};
TEST_P(GoldenSlots, Agrees) {
  expect_case_agrees(GetParam(), probe::core_runners());
}
INSTANTIATE_TEST_SUITE_P(Selection, GoldenSlots, ::testing::ValuesIn(golden_cases("sparo", "slot_selection")),
                         golden_name);
INSTANTIATE_TEST_SUITE_P(Mask, GoldenSlots, ::testing::ValuesIn(golden_cases("sparo", "slot_mask")), golden_name);

}  // namespace
}  // namespace tessera
