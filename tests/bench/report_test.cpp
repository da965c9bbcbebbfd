#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "src/report/markdown_table.h"
#include "tests/support/page_data.h"
#include "tools/bench/loss_bench.h"

namespace tessera::bench {
namespace {

constexpr std::int64_t kMebibyte = 1 << 20;

// Returns results for clip and sparc at 16 and 32 pairs, and for gloria only at 16 pairs.
LossBench example() {
  LossBench bench;
  bench.machine = "a machine, 2 threads";
  bench.settings.batch_sizes = {16, 32};
  for (const char* name : {"clip", "sparc", "gloria"}) bench.settings.objectives.push_back({name, {name}});
  bench.costs = {{"clip", 16, Outcome::measured, 1e9, kMebibyte, 0.5e-3},
                 {"clip", 32, Outcome::measured, 4e9, 4 * kMebibyte, 2e-3},
                 {"sparc", 16, Outcome::measured, 2e9, 11 * kMebibyte, 5e-3},
                 {"sparc", 32, Outcome::measured, 6e9, 24 * kMebibyte, 12e-3},
                 {"gloria", 16, Outcome::measured, 3e12, 2048 * kMebibyte, 2.5},
                 {"gloria", 32, Outcome::does_not_fit}};
  return bench;
}

TEST(Table, ColumnsAreAligned) {
  EXPECT_EQ(report::markdown_table({"name", "B"}, {{"clip", "1,234"}, {"a longer one"}}),
            "| name         |     B |\n"
            "| ------------ | ----: |\n"
            "| clip         | 1,234 |\n"
            "| a longer one |       |\n");
}

TEST(Table, NumbersHaveThreeDigits) {
  EXPECT_EQ(report::three_digits(0), "0.00");
  EXPECT_EQ(report::three_digits(0.012345), "0.0123");
  EXPECT_EQ(report::three_digits(1.005), "1.00");
  EXPECT_EQ(report::three_digits(9.999), "10.0");
  EXPECT_EQ(report::three_digits(99.96), "100");
  EXPECT_EQ(report::three_digits(-12.34), "-12.3");
  EXPECT_EQ(report::three_digits(1234567), "1,234,567");
}

TEST(LossReport, TablesHaveARowPerObjectiveAndAColumnPerBatchSize) {
  const std::string text = to_markdown(example());
  EXPECT_NE(text.find("Machine: a machine, 2 threads. Features: P = 196, L = 55, D = 512, float32"), std::string::npos);
  EXPECT_NE(text.find("| Loss alone, peak memory (MiB) | B = 16 |       B = 32 |\n"
                      "| ----------------------------- | -----: | -----------: |\n"
                      "| clip                          |   1.00 |         4.00 |\n"
                      "| sparc                         |   11.0 |         24.0 |\n"
                      "| gloria                        |  2,048 | does not fit |\n"),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find("Update step"), std::string::npos) << "this benchmark has no towers";
}

TEST(LossReport, SparcIsComparedWithClipInPercent) {
  LossBench bench = example();
  EXPECT_NE(to_markdown(bench).find("SPARC over CLIP at B = 32: the loss alone takes 2.00 GFLOPs and 20.0 MiB more "
                                    "(+50.0% and +500%).\n"),
            std::string::npos)
      << to_markdown(bench);
  for (const char* name : {"clip", "sparc", "gloria"}) {
    ModelCost& cost = bench.models.emplace_back(ModelCost{name, 100, 1000 * kMebibyte});
    for (const std::int64_t pairs : {1, 2}) {
      const auto count = static_cast<double>(pairs);
      cost.towers.forward.add(pairs, MemoryTrace({count * 100 * kMebibyte}), count * 4e10);
      cost.towers.backward.add(pairs, {}, count * 6e10);
    }
  }
  // SPARC adds 2 GFLOPs and 20 MiB to CLIP's update step, which takes 3,204 GFLOPs and 4,204 MiB.
  EXPECT_NE(to_markdown(bench).find(", the update step +0.0624% FLOPs and +0.476% memory.\n"), std::string::npos)
      << to_markdown(bench);
  EXPECT_NE(to_markdown(bench).find("| Update step, peak memory (MiB) |"), std::string::npos);
  EXPECT_NE(to_markdown(bench).find("| clip                                     |   0.00 |         0.00 |\n"
                                    "| sparc                                    |  0.384 |        0.476 |\n"),
            std::string::npos)
      << to_markdown(bench);
  EXPECT_NE(to_page(bench).find("Update step, peak memory over CLIP's (%)"), std::string::npos);
}

TEST(LossReport, JsonHasEveryMeasurement) {
  const auto json = nlohmann::json::parse(to_json(example()));
  EXPECT_EQ(json["costs"].size(), 6u);
  EXPECT_EQ(json["costs"][3]["peak_bytes"], 24 * kMebibyte);
  EXPECT_EQ(json["costs"][5]["outcome"], "does not fit");
  EXPECT_FALSE(json["costs"][5].contains("seconds"));
}

TEST(LossPage, HasALogarithmicChartPerQuantityAndALinePerObjective) {
  const std::string page = to_page(example());
  expect_self_contained(page);
  const nlohmann::json charts = page_data(page).at("sections").at(0).at("cards").at(0).at("charts");
  ASSERT_EQ(charts.size(), 3u);
  for (const auto& chart : charts) {
    EXPECT_TRUE(chart.at("log").get<bool>());
    ASSERT_EQ(chart.at("lines").size(), 3u);
    EXPECT_EQ(chart.at("lines").at(1).at(0), "sparc");
    EXPECT_EQ(chart.at("lines").at(1).at(1).dump(), "[16.0,32.0]");
    EXPECT_EQ(chart.at("lines").at(2).at(1).dump(), "[16.0]") << "gloria does not fit at 32";
  }
}

}  // namespace
}  // namespace tessera::bench
