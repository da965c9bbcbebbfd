#include "tools/bench/tune.h"

#include <cmath>

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include "tests/support/error_of.h"

namespace tessera::bench {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// An operator with configurations on the CPU, whose name is its result: 1 is right.
TuningCase example(std::vector<std::string> configurations) {
  TuningCase out{{"example", kernels::Pass::kForward, at::kFloat, {7}}, "n=7", std::move(configurations), {}, {}, 0.01};
  out.run = [key = out.key] {
    const char* const chosen = tuned_configuration(key);
    const std::string name = chosen == nullptr ? "1" : chosen;
    TORCH_CHECK(name != "large", "example: does not fit");
    return Tensors{at::full({2}, std::stod(name))};
  };
  out.reference = [] { return Tensors{at::ones({2}, at::kDouble)}; };
  return out;
}

/// Returns the times in turn.
Timer stand_in(std::vector<double> seconds) {
  return [seconds, next = std::size_t{0}](const std::function<void()>& call) mutable {
    call();
    return seconds.at(next++);
  };
}

TEST(Tune, TheFastestConfigurationWithRightResultsIsChosen) {
  const TuningCase tuned = example({"1.001", "2", "large", "0.999"});
  TuneBench bench;
  bench.table.gpu = "a GPU";
  bench.add(tuned, tune(tuned, stand_in({3e-6, 2e-6, 1e-6})));
  const std::vector<TuningCandidate>& candidates = bench.cases[0].candidates;
  ASSERT_EQ(candidates.size(), 5u);
  EXPECT_EQ(candidates[0].configuration, "");
  EXPECT_DOUBLE_EQ(candidates[0].seconds, 3e-6);
  EXPECT_EQ(candidates[2].reason, "its error is 1, above 0.01");
  EXPECT_EQ(candidates[3].reason, "example: does not fit");
  EXPECT_TRUE(candidates[2].wrong && !candidates[3].wrong);
  EXPECT_TRUE(bench.any_wrong());
  const TuningChoice& choice = bench.table.choices.at(tuned.key);
  EXPECT_EQ(choice.configuration, "0.999");
  EXPECT_EQ(choice.microseconds, (std::map<std::string, double>{{"rule", 3}, {"1.001", 2}, {"0.999", 1}}));
  EXPECT_NE(to_markdown(bench).find("| example forward, n=7, float32 | 3.0 | 1.0 | 0.999 | 1.001: 2.0; 2: its error is 1, above 0.01; "
                                    "large: example: does not fit |"),
            std::string::npos)
      << to_markdown(bench);
}

TEST(Tune, ACaseWithoutARightConfigurationHasNoChoice) {
  const TuningCase tuned = example({"large"});
  TuneBench bench;
  bench.add(tuned, tune(tuned, stand_in({1e-6})));
  EXPECT_TRUE(bench.table.choices.empty());
  EXPECT_FALSE(bench.any_wrong());
}

TEST(Tune, ErrorsAreRelativeToTheReference) {
  const at::Tensor reference = at::tensor({3.0, 4.0}, at::kDouble);
  EXPECT_DOUBLE_EQ(relative_error({at::tensor({3.0, 4.5})}, {reference}), 0.1);
  EXPECT_EQ(relative_error({at::tensor({3.0, kNan})}, {reference}), std::numeric_limits<double>::infinity());
  EXPECT_EQ(relative_error({at::ones({3})}, {reference}), std::numeric_limits<double>::infinity());
  EXPECT_EQ(relative_error({at::zeros({2})}, {at::zeros({2}, at::kDouble)}), 0);
}

// On the CPU there is nothing to choose, but the passes and their references are the same.
TEST(Tune, ProductsOfAMapAgreeWithFloat64) {
  const at::Device device = at::hasCUDA() ? at::kCUDA : at::kCPU;
  for (const bool with_bias : {false, true}) {
    const std::vector<TuningCase> cases = map_tuning_cases({48, 16, 24, with_bias}, device);
    ASSERT_EQ(cases.size(), 3u);
    for (const TuningCase& each : cases) {
      SCOPED_TRACE(each.problem);
      EXPECT_EQ(each.library, "cublas");
      EXPECT_EQ(each.key.shape, (std::vector<std::int64_t>{&each - cases.data(), 64, 16, 24, &each == &cases[2],
                                                           &each == &cases[0] || (&each == &cases[2] && with_bias), 0, 0}));
      const TunedCase measured = tune(each, [](const std::function<void()>&) { return 1e-6; });
      EXPECT_EQ(measured.candidates.size(), 1 + each.configurations.size());
      for (const TuningCandidate& candidate : measured.candidates) EXPECT_EQ(candidate.reason, "") << candidate.configuration;
    }
  }
}

TEST(Tune, NeedsAGpu) {
  TuneSettings settings;
  settings.device = at::kCPU;
  EXPECT_EQ(error_of([&] { measure_tuning(settings); }),
            "tune: needs a GPU, because only kernels for GPUs have configurations: run it with --device cuda on the GPU for which you "
            "want a table");
}

}  // namespace
}  // namespace tessera::bench
