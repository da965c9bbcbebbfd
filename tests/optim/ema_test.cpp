#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/optim/ema.h>

namespace tessera {
namespace {

TEST(Ema, FollowsTheRecurrenceWithWarmUp) {
  for (const bool warmup : {false, true}) {
    at::Tensor weight = at::full({2}, 1.0).set_requires_grad(true);
    at::Tensor count = at::zeros({}, at::kLong);
    Ema average({{"w", weight}, {"count", count}}, {.decay = 0.9, .warmup = warmup});
    double expected = 1.0;
    for (std::int64_t t = 1; t <= 100; ++t) {
      weight.detach().fill_(static_cast<double>(t));
      count.fill_(t);
      average.update(t);
      const double decay =
          warmup ? std::min(0.9, (1.0 + static_cast<double>(t)) / (10.0 + static_cast<double>(t))) : 0.9;
      expected = decay * expected + (1 - decay) * static_cast<double>(t);
    }
    EXPECT_NEAR(average.averages().at("w")[0].item<double>(), expected, 1e-4);
    EXPECT_EQ(average.averages().at("count").item<std::int64_t>(), 100) << "a count is copied, not averaged";
  }
}

TEST(Ema, SwappingTwiceRestoresTheWeights) {
  at::Tensor weight = at::full({2}, 1.0);
  Ema average({{"w", weight}}, {.decay = 0.5, .warmup = false});
  weight.fill_(3.0);
  average.update(1);
  average.swap();
  EXPECT_TRUE(at::equal(weight, at::full({2}, 2.0)));
  average.swap();
  EXPECT_TRUE(at::equal(weight, at::full({2}, 3.0)));
  EXPECT_TRUE(at::equal(average.averages().at("w"), at::full({2}, 2.0)));
}

TEST(Ema, ErrorsNameAStateThatDoesNotFit) {
  Ema average({{"w", at::ones({2})}}, EmaSettings{});
  const auto error = [&](const std::map<std::string, at::Tensor>& state) -> std::string {
    try {
      average.load(state, "f");
    } catch (const UserError& problem) {
      return problem.what();
    }
    return "no error";
  };
  EXPECT_EQ(error({}), "f: lacks w");
  EXPECT_EQ(error({{"w", at::ones({3})}}), "f: w has shape [3], expected [2]");
}

}  // namespace
}  // namespace tessera
