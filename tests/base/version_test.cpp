#include <regex>

#include <gtest/gtest.h>

#include <tessera/base/version.h>

namespace tessera {
namespace {

TEST(Version, NamesProjectVersionAndCommit) {
  EXPECT_TRUE(std::regex_match(version(), std::regex(R"(\d+\.\d+\.\d+)"))) << version();
  EXPECT_TRUE(std::regex_match(commit(), std::regex("[0-9a-f]{7,}|unknown"))) << commit();
  EXPECT_EQ(version_line(), "Tessera " + version() + " (" + commit() + ")");
}

}  // namespace
}  // namespace tessera
