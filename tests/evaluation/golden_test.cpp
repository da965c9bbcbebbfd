#include <gtest/gtest.h>

#include <tessera/probe/compare.h>

namespace tessera {
namespace {

TEST(MetricsGolden, EveryReferenceCaseAgrees) {
  const probe::Runners runners = probe::core_runners();
  const std::vector<std::string> files = probe::case_files(TESSERA_TEST_DATA "/golden/metrics");
  EXPECT_EQ(files.size(), 32U);
  for (const std::string& file : files) {
    const probe::CaseReport report = probe::run_file(file, runners);
    EXPECT_TRUE(report.agrees()) << file << "\n" << report.failure << "\n" << probe::format_table(report);
  }
}

}  // namespace
}  // namespace tessera
