#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "src/report/markdown_table.h"
#include "src/report/plot.h"
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
  EXPECT_NE(to_svg(bench).find("Update step, peak memory over CLIP's (%)"), std::string::npos);
}

TEST(LossReport, JsonHasEveryMeasurement) {
  const auto json = nlohmann::json::parse(to_json(example()));
  EXPECT_EQ(json["costs"].size(), 6u);
  EXPECT_EQ(json["costs"][3]["peak_bytes"], 24 * kMebibyte);
  EXPECT_EQ(json["costs"][5]["outcome"], "does not fit");
  EXPECT_FALSE(json["costs"][5].contains("seconds"));
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(Plot, HasACurvePerObjectiveAndPanel) {
  const std::string svg = to_svg(example());
  EXPECT_EQ(svg.rfind("<svg ", 0), 0u);
  EXPECT_EQ(count(svg, "<polyline"), 9u) << "three objectives in three panels";
  EXPECT_EQ(count(svg, "r=\"2.6\""), 15u) << "five measured points in each";
  EXPECT_EQ(count(svg, ">sparc</text>"), 1u) << "one legend";
  EXPECT_EQ(count(svg, "nan"), 0u);
  EXPECT_EQ(count(svg, "<g "), count(svg, "</g>"));
}

TEST(Plot, AxesAreLogarithmic) {
  const std::string svg = report::svg_plot({{"t", "x", {{"a", {{1, 1}, {2, 10}, {4, 100}}}}}});
  // The plot area is 330 - 52 - 12 wide and 270 - 34 - 44 high. Values that differ by equal factors must be at equal distances.
  EXPECT_NE(svg.find("points=\"52.0,226.0 185.0,130.0 318.0,34.0 \""), std::string::npos) << svg;
}

TEST(Plot, EmptySeriesAndNonpositiveValuesAreNotDrawn) {
  EXPECT_EQ(count(report::svg_plot({{"a < b & c", "x", {{"s", {}}}}}), "<polyline"), 0u);
  EXPECT_NE(report::svg_plot({{"a < b & c", "x", {}}}).find("a &lt; b &amp; c"), std::string::npos);
  EXPECT_EQ(count(report::svg_plot({{"t", "x", {{"s", {{1, 0}, {2, 3}}}}}}), "<circle"), 2u) << "one point and the legend";
}

}  // namespace
}  // namespace tessera::bench
