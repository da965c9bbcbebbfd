#include <algorithm>
#include <set>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/evaluation/tasks/probe_fit.h"
#include "tests/support/contains.h"
#include "tests/support/error_of.h"
#include <tessera/config/fields.h>

namespace tessera {
namespace {

/// Returns two labeled clouds of points, so far apart along the first axis that a linear probe separates them.
LabeledFeatures clouds(std::int64_t count) {
  at::manual_seed(9);
  LabeledFeatures out;
  out.labels = at::arange(count, at::kLong).remainder(2);
  out.features = at::randn({count, 4});
  out.features.select(1, 0).add_(out.labels.to(at::kFloat) * 16 - 8);
  return out;
}

LinearProbeSettings adamw(std::vector<double> rates, std::vector<double> decays) {
  LinearProbeSettings settings;
  settings.solver = "adamw";
  settings.learning_rates = std::move(rates);
  settings.weight_decays = std::move(decays);
  settings.batch_size = 16;
  return settings;
}

TEST(ProbeFit, SweepPicksTheBestOnTheHeldOutPart) {
  const LabeledFeatures train = clouds(100);
  // A weight decay of 1e9 makes the weights diverge. All other settings of the sweep classify everything right, so the first of these other
  // settings wins.
  const AdamwChoice choice = fit_with_adamw(train, 2, adamw({0.1, 0.2}, {1e9, 0.01, 0.0}));
  EXPECT_EQ(choice.lr, 0.1);
  EXPECT_EQ(choice.weight_decay, 0.01);
  EXPECT_EQ(choice.validation_top1, 1.0);
  EXPECT_EQ(choice.probe.train_top1, 1.0);
  EXPECT_EQ(choice.probe.losses.size(0), 10 * (100 / 16)) << "the final fit uses all training samples";
}

TEST(ProbeFit, IsDeterministic) {
  const LabeledFeatures train = clouds(50);
  const auto once = fit_with_adamw(train, 2, adamw({0.01, 0.1}, {0.0})), again = fit_with_adamw(train, 2, adamw({0.01, 0.1}, {0.0}));
  EXPECT_TRUE(at::equal(once.probe.weight, again.probe.weight));
  EXPECT_TRUE(at::equal(once.probe.bias, again.probe.bias));
}

TEST(ProbeFit, HoldsOutNothingIfThereIsNothingToChoose) {
  LinearProbeSettings settings = adamw({0.1}, {0.0});
  settings.validation_share = 0;
  const AdamwChoice choice = fit_with_adamw(clouds(8), 2, settings);
  EXPECT_FALSE(choice.validation_top1.has_value());
  EXPECT_EQ(choice.probe.losses.size(0), 10) << "a batch is not larger than the data";
}

TEST(ProbeFit, HeldOutPartIsAlwaysTheSame) {
  const LabeledFeatures train = clouds(10);
  const HeldOut parts = hold_out(train, LinearProbeSettings());
  EXPECT_EQ(parts.validation.labels.size(0), 2);
  EXPECT_EQ(parts.rest.labels.size(0), 8);
  const at::Tensor all = at::cat({parts.validation.features, parts.rest.features}).select(1, 1);
  EXPECT_TRUE(at::equal(std::get<0>(all.sort()), std::get<0>(train.features.select(1, 1).sort())));
  EXPECT_TRUE(at::equal(hold_out(train, LinearProbeSettings()).rest.features, parts.rest.features));
}

TEST(ProbeFit, ShotsAreDrawnFromEachClass) {
  LabeledFeatures train = clouds(40);
  train.labels = at::tensor(std::vector<std::int64_t>(40, 0), at::kLong);
  train.labels.narrow(0, 30, 9).fill_(2);
  train.labels.narrow(0, 39, 1).fill_(1);
  const HeldOut drawn = draw_shots(train, 5, 1);
  EXPECT_TRUE(at::equal(at::bincount(drawn.rest.labels), at::tensor({5, 1, 5}, at::kLong)));
  EXPECT_TRUE(at::equal(at::bincount(drawn.validation.labels), at::tensor({4, 0, 4}, at::kLong)));
  const auto rows = [](const LabeledFeatures& of) {
    const auto* values = of.features.const_data_ptr<float>();
    std::set<float> out;
    for (std::int64_t i = 0; i < of.features.size(0); ++i) out.insert(values[i * of.features.size(1)]);
    return out;
  };
  const std::set<float> five = rows(drawn.rest), three = rows(draw_shots(train, 3, 1).rest), other = rows(draw_shots(train, 5, 2).rest);
  EXPECT_TRUE(std::ranges::includes(five, three)) << "fewer shots are a part of more";
  EXPECT_NE(five, other);
  for (const float row : rows(drawn.validation)) EXPECT_FALSE(five.contains(row));
}

TEST(ProbeFit, RejectsImpossibleSettings) {
  const auto problem = [](const std::string& yaml) {
    return error_of([&] { config::read<LinearProbeSettings>(config::parse_yaml(yaml, "p.yaml"), "probe"); });
  };
  EXPECT_EQ(problem("{solver: adamw, l2: 0.1}"), "p.yaml:1: probe.l2: belongs to solver: lbfgs; with adamw set weight_decays");
  EXPECT_EQ(problem("{solver: adamw, learning_rates: []}"), "p.yaml:1: probe.learning_rates: is empty: give at least one");
  EXPECT_TRUE(contains(problem("{solver: adamw, validation_share: 0}"), "give one of each, or a share above 0"));
  EXPECT_EQ(problem("{solver: adamw, validation_share: 0, learning_rates: [0.1], weight_decays: [0]}"), "no error");
  EXPECT_EQ(error_of([] { hold_out(clouds(2), adamw({0.1, 0.2}, {0})); }),
            "linear_probe.validation_share is 0.2, which holds out 0 of 2 training samples: set one learning rate and one "
            "weight decay instead, or another share");
}

}  // namespace
}  // namespace tessera
