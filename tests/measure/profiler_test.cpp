#include <algorithm>
#include <fstream>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "src/measure/profiler.h"
#include "tests/support/temporary_folder.h"

namespace tessera {
namespace {

double share_of(const Profiler& profiler, const std::string& name) {
  for (const Profiler::Share& share : profiler.shares())
    if (share.name == name) return share.seconds;
  return 0;
}

TEST(Profiler, ReportsTimePerOperatorAndWritesTheTrace) {
  const at::Tensor a = at::randn({300, 300});
  Profiler profiler(at::kCPU);
  profiler.mark("three products");
  for (int i = 0; i < 3; ++i) at::linear(a, a);
  profiler.end_mark();
  profiler.stop();

  const std::vector<Profiler::Share> shares = profiler.shares();
  ASSERT_FALSE(shares.empty());
  EXPECT_EQ(shares[0].name, "aten::mm") << "the matrix product takes longest in at::linear";
  EXPECT_EQ(shares[0].calls, 3);
  for (std::size_t i = 1; i < shares.size(); ++i) EXPECT_LE(shares[i].seconds, shares[i - 1].seconds);
  EXPECT_LT(share_of(profiler, "aten::linear"), shares[0].seconds) << "the time of the product inside must not count";
  EXPECT_EQ(share_of(profiler, "three products"), 0) << "a mark is not an operator";
  EXPECT_EQ(profiler.host_waits(), 0) << "on the CPU nothing waits for a GPU";

  const TemporaryFolder folder;
  profiler.save(folder / "trace.json");
  std::ifstream file(folder / "trace.json");
  const nlohmann::json trace = nlohmann::json::parse(file);
  EXPECT_TRUE(std::ranges::any_of(trace["traceEvents"], [](const auto& event) {
    return event.value("name", "") == "three products";
  }));
}

}  // namespace
}  // namespace tessera
