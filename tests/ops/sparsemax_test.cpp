#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/support/error_of.h"
#include "tests/support/gradcheck.h"
#include <tessera/ops/sparsemax.h>

namespace tessera {
namespace {

// Computes sparsemax with a threshold tau that it finds by bisection. As tau rises from max - 1 to max, the sum of max(z - tau, 0)
// falls from at least 1 to 0.
at::Tensor by_bisection(const at::Tensor& scores) {
  at::Tensor high = scores.amax(-1, true), low = high - 1;
  for (int i = 0; i < 100; ++i) {
    const at::Tensor middle = (low + high) / 2;
    const at::Tensor above = (scores - middle).clamp_min(0).sum(-1, true) >= 1;
    low = at::where(above, middle, low);
    high = at::where(above, high, middle);
  }
  return (scores - low).clamp_min(0);
}

TEST(Sparsemax, IsTheProjectionOntoTheSimplex) {
  at::manual_seed(1);
  for (const double scale : {0.01, 1.0, 30.0}) {
    const at::Tensor scores = scale * at::randn({7, 40}, at::kDouble);
    const at::Tensor weights = sparsemax(scores);
    EXPECT_TRUE(at::allclose(weights, by_bisection(scores), 0, 1e-12)) << scale;
    EXPECT_TRUE(at::allclose(weights.sum(-1), at::ones({7}, at::kDouble), 0, 1e-12)) << scale;
  }
}

TEST(Sparsemax, GradientsMatchFiniteDifferencesAlongAnyDimension) {
  at::manual_seed(2);
  for (const std::int64_t dim : {0, 1, 2, -1}) {
    const at::Tensor scores = at::randn({3, 5, 4}, at::kDouble).requires_grad_(true);
    const at::Tensor weights = at::randn({3, 5, 4}, at::kDouble);
    expect_gradients_match({scores}, [&] { return (sparsemax(scores, dim) * weights).square().sum(); });
  }
}

TEST(Sparsemax, ScoresAtTheThresholdGiveZeroWithoutGradient) {
  // tau is 0, because the only score above 0 is 1.
  const at::Tensor scores = at::tensor({1.0, 0.0, -3.0, 0.0}, at::kDouble).requires_grad_(true);
  const at::Tensor weights = sparsemax(scores);
  EXPECT_TRUE(at::equal(weights, at::tensor({1.0, 0.0, 0.0, 0.0}, at::kDouble)));
  const auto gradient = torch::autograd::grad({weights}, {scores}, {at::tensor({5.0, 7.0, 1.0, 2.0}, at::kDouble)})[0];
  EXPECT_TRUE(at::equal(gradient, at::zeros({4}, at::kDouble))) << gradient;
}

TEST(Sparsemax, DoesNotDependOnACommonShift) {
  const at::Tensor scores = at::tensor({0.25F, 0.5F, -0.125F});
  EXPECT_TRUE(at::equal(sparsemax(scores + 65536), sparsemax(scores)));
}

TEST(Sparsemax, EqualScoresShareEvenly) {
  EXPECT_TRUE(at::allclose(sparsemax(at::zeros({2, 16384})), at::full({2, 16384}, 1.0 / 16384)));
}

TEST(Sparsemax, NarrowTypesComputeInFloat32) {
  const at::Tensor scores = at::randn({3, 9}).to(at::kBFloat16);
  EXPECT_TRUE(at::equal(sparsemax(scores), sparsemax(scores.to(at::kFloat))));
}

TEST(Sparsemax, NonFiniteScoresGiveNanInTheirRow) {
  const double none = std::nan(""), infinite = std::numeric_limits<double>::infinity();
  for (const double bad : {none, infinite}) {
    const at::Tensor weights = sparsemax(at::tensor({0.5, bad, 0.25, 0.5, 1.0, 0.0}, at::kDouble).view({2, 3}));
    EXPECT_TRUE(weights[0].isnan().any().item<bool>()) << weights;
    EXPECT_TRUE(weights[1].isfinite().all().item<bool>()) << weights;
  }
}

TEST(Sparsemax, ErrorsNameWrongInputs) {
  EXPECT_EQ(error_of<c10::Error>([] {
              sparsemax(at::zeros({3, 0}));
            }),
            "sparsemax: scores must be floating with at least one entry along dimension -1, got Float [3, 0]");
  EXPECT_EQ(error_of<c10::Error>([] { sparsemax(at::zeros({3}, at::kLong)); }),
            "sparsemax: scores must be floating with at least one entry along dimension -1, got Long [3]");
}

}  // namespace
}  // namespace tessera
