// Tests confidence intervals from a bootstrap over samples.
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/error_of.h"
#include <tessera/report/task_outcomes.h>

namespace tessera::report {
namespace {

std::vector<double> coin_flips(int heads, int tails) {
  std::vector<double> out(static_cast<std::size_t>(heads), 1);
  out.resize(static_cast<std::size_t>(heads + tails), 0);
  return out;
}

Interval interval_of(const Outcomes& outcomes, std::int64_t samples, std::int64_t resamples = kResamples, std::uint64_t seed = 0) {
  return middle(bootstrap_values({outcomes}, samples, resamples, seed).front()).value();
}

TEST(Bootstrap, MetricIsTheMeanOverGroupsOfRatiosOfSums) {
  EXPECT_DOUBLE_EQ(value_of(mean_outcomes("top1", {1, 0, -1, 1, 1})), 0.75) << "values below 0 do not count";
  // The IoU of the first class is (3 + 1) / (4 + 4), that of the second class 2 / 8. The third class has an empty union and does not count.
  const Outcomes iou{"dataset_miou", {{0, 3, 4, 0}, {1, 1, 4, 0}, {1, 2, 8, 1}, {0, 0, 0, 2}}};
  EXPECT_DOUBLE_EQ(value_of(iou), (0.5 + 0.25) / 2);
  EXPECT_TRUE(std::isnan(value_of({"none", {}})));
}

TEST(Bootstrap, IntervalOfAShareMatchesTheBinomialDistribution) {
  const auto interval = interval_of(mean_outcomes("top1", coin_flips(300, 700)), 1000, 4000);
  const double half = 1.96 * std::sqrt(0.3 * 0.7 / 1000);
  EXPECT_NEAR(interval.low, 0.3 - half, 0.003);
  EXPECT_NEAR(interval.high, 0.3 + half, 0.003);
}

TEST(Bootstrap, DependsOnlyOnTheSeedAndIsExactForEqualSamples) {
  const Outcomes flips = mean_outcomes("top1", coin_flips(3, 4));
  const auto one = interval_of(flips, 7, 100, 1), again = interval_of(flips, 7, 100, 1);
  EXPECT_EQ(one.low, again.low);
  EXPECT_EQ(one.high, again.high);
  EXPECT_NE(bootstrap_values({flips}, 7, 100, 1), bootstrap_values({flips}, 7, 100, 2));
  const auto equal = interval_of(mean_outcomes("loss", {2.5, 2.5, 2.5}), 3);
  EXPECT_DOUBLE_EQ(equal.low, 2.5);
  EXPECT_DOUBLE_EQ(equal.high, 2.5);
  EXPECT_TRUE(compute_intervals({"knn", "d", "", 1, {mean_outcomes("top1", {1})}}).empty()) << "one sample has no interval";
}

TEST(Bootstrap, EntriesOfOneSampleAreDrawnTogether) {
  // Each of ten images has ten captions, which are all right or all wrong. So the interval must be as wide as for ten samples.
  Outcomes grouped{"recall@1", {}}, alone{"recall@1", {}};
  for (std::int64_t i = 0; i < 100; ++i) {
    grouped.entries.push_back({i / 10, (i / 10) % 2 == 0 ? 1.0 : 0.0});
    alone.entries.push_back({i, (i / 10) % 2 == 0 ? 1.0 : 0.0});
  }
  const auto wide = interval_of(grouped, 10), narrow = interval_of(alone, 100);
  EXPECT_GT(wide.high - wide.low, 2 * (narrow.high - narrow.low));
}

TEST(Bootstrap, ResampleWithoutAGroupLeavesItOut) {
  const Outcomes rare{"mean_per_class", {{0, 1, 1, 0}, {1, 1, 1, 0}, {2, 0, 1, 1}}};
  const auto values = bootstrap_values({rare}, 3, 200);
  for (const double value : values.front())
    EXPECT_TRUE(value == 0 || value == 0.5 || value == 1) << value;
}

TEST(Bootstrap, PercentilesAreInterpolated) {
  std::vector<double> values(41);
  std::iota(values.rbegin(), values.rend(), 0);
  values.push_back(std::nan(""));
  const auto interval = middle(values);
  EXPECT_DOUBLE_EQ(interval->low, 1);
  EXPECT_DOUBLE_EQ(interval->high, 39);
  EXPECT_FALSE(middle({1, std::nan("")}));
}

TEST(Bootstrap, PairedDifferencesAreTighterThanSeparateIntervals) {
  std::vector<double> worse, better;
  for (int i = 0; i < 200; ++i) {
    worse.push_back(i % 2);
    better.push_back(i % 20 == 0 ? 1 : i % 2);  // right wherever `worse` is right, and on 5% more samples
  }
  const Outcomes one = mean_outcomes("top1", worse), other = mean_outcomes("top1", better);
  EXPECT_GT(interval_of(one, 200).high, interval_of(other, 200).low) << "the separate intervals overlap";
  const auto difference =
      difference_interval(bootstrap_values({other}, 200).front(), bootstrap_values({one}, 200).front());
  EXPECT_GT(difference->low, 0);
  EXPECT_LT(difference->high, 0.12);
}

TEST(Bootstrap, OutcomesReadBackFromTheirFile) {
  const TaskOutcomes task{"retrieval",
                          "d",
                          "0123456789abcdef",
                          3,
                          {mean_outcomes("a", {1, 0, 0.25}), {"b", {{2, 1, 4, 0}, {2, 0.5, 1, 7}}}}};
  const nlohmann::json json = to_json({task});
  EXPECT_EQ(json.at("tasks").at(0).at("metrics").at("a").dump(), R"({"parts":[1,0,0.25]})");
  const TaskOutcomes back = task_outcomes(json, "samples.json").at(0);
  EXPECT_EQ(back.mark, task.mark);
  EXPECT_EQ(back.samples, 3);
  ASSERT_EQ(back.metrics.size(), 2u);
  for (std::size_t m = 0; m < 2; ++m) {
    EXPECT_EQ(back.metrics[m].metric, task.metrics[m].metric);
    EXPECT_EQ(testing::PrintToString(bootstrap_values({back.metrics[m]}, 3, 20)),
              testing::PrintToString(bootstrap_values({task.metrics[m]}, 3, 20)));  // compares text, because some values are NaN
  }
}

TEST(Bootstrap, ErrorForAnotherFileIsOneLine) {
  for (const char* text :
       {"{}", R"({"tasks":[{"task":"a"}]})", "[]",
        R"({"tasks":[{"task":"a","data":"d","mark":"","samples":1,"metrics":{"m":{"parts":[1,2]}}}]})"}) {
    const std::string error = error_of([&] { task_outcomes(nlohmann::json::parse(text), "a/samples.json"); });
    EXPECT_TRUE(error.starts_with("a/samples.json: holds no outcomes of samples")) << error;
  }
}

}  // namespace
}  // namespace tessera::report
