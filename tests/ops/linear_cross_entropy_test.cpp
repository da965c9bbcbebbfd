#include <limits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "src/models/autocast.h"
#include "tests/ops/largest_allocation.h"
#include "tests/support/error_of.h"
#include "tests/support/gradcheck.h"
#include <tessera/ops/linear_cross_entropy.h>

namespace tessera {
namespace {

constexpr std::int64_t kIgnored = -100;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct LossInputs {
  at::Tensor hidden, weight, targets, bias;
  std::vector<at::Tensor> leaves() const {
    return bias.defined() ? std::vector{hidden, weight, bias} : std::vector{hidden, weight};
  }
};

struct LossShape {
  std::int64_t rows, vocabulary, width;
};

LossInputs random_loss_inputs(const LossShape& s, at::ScalarType dtype, bool with_bias, double ignored = 0) {
  at::manual_seed(7);
  LossInputs in;
  in.hidden = at::randn({s.rows, s.width}, at::kDouble);
  in.weight = at::randn({s.vocabulary, s.width}, at::kDouble);
  if (with_bias) in.bias = at::randn({s.vocabulary}, at::kDouble);
  in.targets = at::randint(s.vocabulary, {s.rows}, at::kLong);
  in.targets.masked_fill_(at::rand({s.rows}) < ignored, kIgnored);
  for (at::Tensor* each : {&in.hidden, &in.weight, &in.bias})
    if (each->defined()) *each = each->to(at::kFloat).to(dtype).requires_grad_(true);
  return in;
}

LossInputs as(const LossInputs& in, at::ScalarType dtype) {
  const auto leaf = [&](const at::Tensor& x) {
    return x.defined() ? x.detach().to(dtype).requires_grad_(true) : at::Tensor();
  };
  return {leaf(in.hidden), leaf(in.weight), in.targets, leaf(in.bias)};
}

at::Tensor fused(const LossInputs& in, at::Reduction::Reduction reduction = at::Reduction::Mean) {
  return linear_cross_entropy(in.hidden, in.weight, in.targets, kIgnored, in.bias, reduction);
}

// Computes the loss with LibTorch's operators, which hold all logits [T, V].
at::Tensor composed(const LossInputs& in, at::Reduction::Reduction reduction = at::Reduction::Mean) {
  const at::Tensor logits = at::linear(in.hidden, in.weight, in.bias.defined() ? std::optional(in.bias) : std::nullopt);
  return at::cross_entropy_loss(logits, in.targets, {}, reduction, kIgnored);
}

// Returns the gradients of 3 * loss.
std::vector<at::Tensor> collect_gradients(const at::Tensor& loss, const LossInputs& in) {
  return torch::autograd::grad({loss}, in.leaves(), {at::full({}, 3.0, loss.options())});
}

double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return a.numel() > 0 ? (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>() : 0;
}

// Allows an error of tolerance * (1 + max |theirs|) + rounding.
void expect_near(const at::Tensor& ours, const at::Tensor& theirs, double tolerance, double rounding = 0) {
  ASSERT_EQ(ours.sizes(), theirs.sizes());
  const double bound = tolerance * (1 + (theirs.numel() > 0 ? theirs.abs().max().item<double>() : 0)) + rounding;
  EXPECT_TRUE(at::allclose(ours.to(at::kDouble), theirs.to(at::kDouble), 0, bound))
      << (ours - theirs).abs().max() << " is more than " << bound;
}

void expect_equal(const std::vector<at::Tensor>& ours, const std::vector<at::Tensor>& theirs) {
  ASSERT_EQ(ours.size(), theirs.size());
  for (std::size_t i = 0; i < ours.size(); ++i) EXPECT_TRUE(at::equal(ours[i], theirs[i])) << i;
}

// The last shape has more than one tile of rows.
const std::vector<LossShape> kLossShapes = {{1, 1, 1}, {1, 2, 3}, {5, 7, 4}, {33, 100, 8}, {20, 1030, 17}, {300, 60000, 2}};

TEST(LinearCrossEntropyOperator, MatchesTheComposedOperationsForwardAndBackward) {
  for (const LossShape& shape : kLossShapes) {
    for (const bool with_bias : {false, true}) {
      for (const auto reduction : {at::Reduction::Mean, at::Reduction::Sum}) {
        SCOPED_TRACE(testing::Message() << "T=" << shape.rows << " V=" << shape.vocabulary << " D=" << shape.width
                                        << " bias=" << with_bias << " reduction=" << reduction);
        LossInputs in = random_loss_inputs(shape, at::kFloat, with_bias, 0.3);
        in.targets[-1] = 0;  // so that at least one row is not ignored
        const LossInputs wide = as(in, at::kDouble);
        const at::Tensor ours = fused(in, reduction), theirs = composed(wide, reduction);
        EXPECT_EQ(ours.scalar_type(), at::kFloat);
        expect_near(ours, theirs, 1e-5);
        const auto gradients = collect_gradients(ours, in), wanted = collect_gradients(theirs, wide);
        // The gradients are sums of up to 60,000 products. On some processors, LibTorch's float32 products have errors of 1e-4, so the
        // tolerance includes LibTorch's own error.
        const auto rounded = collect_gradients(composed(in, reduction), in);
        for (std::size_t i = 0; i < gradients.size(); ++i)
          expect_near(gradients[i], wanted[i], 1e-5, 1.5 * largest_difference(rounded[i], wanted[i]));
      }
    }
  }
}

TEST(LinearCrossEntropyOperator, Float64MatchesTheComposedOperations) {
  for (const LossShape& shape : kLossShapes) {
    LossInputs in = random_loss_inputs(shape, at::kDouble, /*with_bias=*/true, 0.3);
    in.targets[-1] = 0;
    const at::Tensor ours = fused(in), theirs = composed(in);
    EXPECT_EQ(ours.scalar_type(), at::kDouble);
    expect_near(ours, theirs, 1e-12);
    const auto gradients = collect_gradients(ours, in), wanted = collect_gradients(theirs, in);
    for (std::size_t i = 0; i < gradients.size(); ++i) expect_near(gradients[i], wanted[i], 1e-12);
  }
}

TEST(LinearCrossEntropyOperator, GradientMatchesFiniteDifferences) {
  for (const bool with_bias : {false, true}) {
    for (const auto reduction : {at::Reduction::Mean, at::Reduction::Sum}) {
      const LossInputs in = random_loss_inputs({5, 6, 3}, at::kDouble, with_bias, 0.3);
      expect_gradients_match(in.leaves(), [&] { return fused(in, reduction) * 2; });
    }
  }
}

TEST(LinearCrossEntropyOperator, IgnoredRowsHaveNoEffectAndNoGradient) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    for (const double spoiled : {kNaN, std::numeric_limits<double>::infinity()}) {
      const LossInputs in = random_loss_inputs({30, 50, 8}, dtype, /*with_bias=*/true, 0.5);
      const at::Tensor ignored = in.targets == kIgnored;
      const at::Tensor clean = fused(in);
      const auto wanted = collect_gradients(clean, in);
      LossInputs dirty = in;
      dirty.hidden = in.hidden.detach().masked_fill(ignored.unsqueeze(1), spoiled).requires_grad_(true);
      const at::Tensor loss = fused(dirty);
      EXPECT_TRUE(at::equal(loss, clean));
      const auto gradients = collect_gradients(loss, dirty);
      expect_equal(gradients, wanted);
      EXPECT_TRUE(gradients[0].index({ignored}).eq(0).all().item<bool>());
    }
  }
}

TEST(LinearCrossEntropyOperator, LossWithoutATargetIsZeroWithoutGradient) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    for (const std::int64_t rows : {0, 4}) {
      for (const auto reduction : {at::Reduction::Mean, at::Reduction::Sum}) {
        LossInputs in = random_loss_inputs({rows, 5, 3}, dtype, /*with_bias=*/true);
        in.targets.fill_(kIgnored);
        const at::Tensor loss = fused(in, reduction);
        EXPECT_EQ(loss.item<double>(), 0);
        for (const at::Tensor& gradient : collect_gradients(loss, in)) EXPECT_TRUE(gradient.eq(0).all().item<bool>());
      }
    }
  }
}

TEST(LinearCrossEntropyOperator, IgnoreIndexMayBeARowOfTheTable) {
  LossInputs in = random_loss_inputs({20, 6, 4}, at::kFloat, /*with_bias=*/false);
  in.targets.masked_fill_(at::arange(20) % 3 == 0, 2);
  const at::Tensor ours = linear_cross_entropy(in.hidden, in.weight, in.targets, 2);
  expect_near(ours, at::cross_entropy_loss(at::linear(in.hidden, in.weight), in.targets, {}, at::Reduction::Mean, 2),
              1e-6);
}

TEST(LinearCrossEntropyOperator, LargeLogitsDoNotOverflow) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    LossInputs in = random_loss_inputs({10, 40, 6}, dtype, /*with_bias=*/false);
    in.hidden = (in.hidden.detach() * 1e4).requires_grad_(true);
    const at::Tensor ours = fused(in), theirs = composed(in);
    EXPECT_TRUE(ours.isfinite().item<bool>());
    expect_near(ours, theirs, 1e-6);
    const auto gradients = collect_gradients(ours, in), wanted = collect_gradients(theirs, in);
    for (std::size_t i = 0; i < gradients.size(); ++i) expect_near(gradients[i], wanted[i], 1e-5);
  }
}

TEST(LinearCrossEntropyOperator, NanInACountedRowIsNotHidden) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const LossInputs in = random_loss_inputs({6, 50, 4}, dtype, /*with_bias=*/false);
    in.hidden.detach()[3][1] = kNaN;
    const at::Tensor loss = fused(in);
    EXPECT_TRUE(loss.isnan().item<bool>());
    EXPECT_TRUE(collect_gradients(loss, in)[0][3].isnan().all().item<bool>());
  }
}

TEST(LinearCrossEntropyOperator, RetainedGraphRepeatsItsGradient) {
  const LossInputs in = random_loss_inputs({20, 60, 5}, at::kFloat, /*with_bias=*/true, 0.3);
  const at::Tensor loss = fused(in);
  const auto gradients = [&](double scale) {
    return torch::autograd::grad({loss}, in.leaves(), {at::full({}, scale)}, /*retain_graph=*/true);
  };
  const auto once = gradients(2), again = gradients(2), twice = gradients(4);
  expect_equal(again, once);
  for (std::size_t i = 0; i < once.size(); ++i) EXPECT_TRUE(at::equal(twice[i], once[i] * 2));
}

TEST(LinearCrossEntropyOperator, ComputesOnlyRequestedGradients) {
  const LossInputs in = random_loss_inputs({20, 4000, 5}, at::kFloat, /*with_bias=*/true, 0.3);
  const auto wanted = collect_gradients(fused(in), in);
  for (std::size_t only = 0; only < 3; ++only) {
    const LossInputs some = as(in, at::kFloat);
    for (std::size_t i = 0; i < 3; ++i) some.leaves()[i].set_requires_grad(i == only);
    const auto gradient = torch::autograd::grad({fused(some)}, {some.leaves()[only]}, {at::full({}, 3.0)});
    EXPECT_TRUE(at::equal(gradient[0], wanted[only])) << only;
  }
  // Requests the gradient of one input, although all inputs require gradients.
  const auto gradient = torch::autograd::grad({fused(in)}, {in.hidden}, {at::full({}, 3.0)});
  EXPECT_TRUE(at::equal(gradient[0], wanted[0]));
}

TEST(LinearCrossEntropyOperator, LossWithoutGradientsIsTheSameAndAllocatesNone) {
  const LossInputs in = random_loss_inputs({10, 4000, 200}, at::kFloat, /*with_bias=*/true, 0.3);
  const at::Tensor expected = fused(in);
  const at::NoGradGuard no_grad;
  const LargestAllocation largest;
  EXPECT_TRUE(at::equal(fused(in), expected));
  EXPECT_LT(largest.bytes(), static_cast<std::int64_t>(in.weight.nbytes()));
}

TEST(LinearCrossEntropyOperator, AllocatesNoBlockAsLargeAsTheLogits) {
  const LossInputs in = random_loss_inputs({2000, 49408, 4}, at::kFloat, /*with_bias=*/true);
  const LargestAllocation largest;
  collect_gradients(fused(in), in);
  EXPECT_LE(largest.bytes(), 4 * 2000 * 49408 / 5);
}

TEST(LinearCrossEntropyOperator, IsDeterministic) {
  for (const LossShape& shape : kLossShapes) {
    std::vector<std::vector<at::Tensor>> runs;
    for (int run = 0; run < 2; ++run) {
      const LossInputs in = random_loss_inputs(shape, at::kFloat, /*with_bias=*/true, 0.3);
      const at::Tensor loss = fused(in);
      runs.push_back(collect_gradients(loss, in));
      runs.back().push_back(loss);
    }
    expect_equal(runs[1], runs[0]);
  }
}

TEST(LinearCrossEntropyOperator, NarrowTypesComputeInFloat) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const LossInputs narrow = random_loss_inputs({20, 70, 5}, dtype, /*with_bias=*/true, 0.3), wide = as(narrow, at::kFloat);
    const at::Tensor ours = fused(narrow), theirs = fused(wide);
    EXPECT_EQ(ours.scalar_type(), at::kFloat);
    EXPECT_TRUE(at::equal(ours, theirs));
    const auto gradients = collect_gradients(ours, narrow), wanted = collect_gradients(theirs, wide);
    for (std::size_t i = 0; i < gradients.size(); ++i) EXPECT_TRUE(at::equal(gradients[i], wanted[i].to(dtype))) << i;
  }
}

TEST(LinearCrossEntropyOperator, ComputesInFloatUnderAutocast) {
  const LossInputs in = random_loss_inputs({20, 70, 5}, at::kFloat, /*with_bias=*/true, 0.3);
  const at::Tensor narrow = in.hidden.detach().to(at::kBFloat16);
  const at::Tensor expected = fused(in), of_narrow = linear_cross_entropy(narrow.to(at::kFloat), in.weight, in.targets);
  const Autocast autocast(at::kCPU);
  EXPECT_TRUE(at::equal(fused(in), expected));
  EXPECT_TRUE(at::equal(linear_cross_entropy(narrow, in.weight, in.targets), of_narrow));
}

TEST(LinearCrossEntropyOperator, AcceptsNonContiguousInputs) {
  const LossInputs in = random_loss_inputs({20, 70, 6}, at::kFloat, /*with_bias=*/true, 0.3);
  const LossInputs strided = {in.hidden.detach().t().contiguous().t().requires_grad_(true),
                          in.weight.detach().t().contiguous().t().requires_grad_(true),
                          at::stack({in.targets, in.targets}, 1).select(1, 0),
                          at::stack({in.bias, in.bias}, 1).detach().select(1, 0).requires_grad_(true)};
  const at::Tensor ours = fused(strided), theirs = fused(in);
  expect_near(ours, theirs, 1e-6);
  const auto gradients = collect_gradients(ours, strided), wanted = collect_gradients(theirs, in);
  for (std::size_t i = 0; i < gradients.size(); ++i) expect_near(gradients[i], wanted[i], 1e-6);
}

TEST(LinearCrossEntropyOperator, RejectsSecondDerivatives) {
  const LossInputs in = random_loss_inputs({4, 5, 3}, at::kDouble, /*with_bias=*/false);
  EXPECT_EQ(error_of<c10::Error>([&] { torch::autograd::grad({fused(in)}, {in.hidden}, {}, std::nullopt, /*create_graph=*/true); }),
            "linear_cross_entropy has no second derivatives");
}

TEST(LinearCrossEntropyOperator, ErrorsNameWrongInputs) {
  const auto error = [](const std::function<void(LossInputs&)>& spoil) {
    LossInputs in = random_loss_inputs({7, 5, 3}, at::kFloat, /*with_bias=*/true);
    spoil(in);
    return error_of<c10::Error>([&] { fused(in); });
  };
  EXPECT_EQ(error([](auto& in) { in.hidden = in.hidden[0]; }),
            "linear_cross_entropy: hidden must be floating [T, D] with D at least 1, got Float [3]");
  EXPECT_EQ(error([](auto& in) { in.weight = in.weight.narrow(1, 0, 2); }),
            "linear_cross_entropy: weight must be Float [V, D] = [V, 3] as hidden is, got Float [5, 2]");
  EXPECT_EQ(error([](auto& in) { in.weight = in.weight.to(at::kDouble); }),
            "linear_cross_entropy: weight must be Float [V, D] = [V, 3] as hidden is, got Double [5, 3]");
  EXPECT_EQ(error([](auto& in) { in.targets = in.targets.to(at::kInt); }),
            "linear_cross_entropy: targets must be int64 [T] = [7], got Int [7]");
  EXPECT_EQ(error([](auto& in) { in.bias = in.bias.narrow(0, 0, 4); }),
            "linear_cross_entropy: bias must be floating [V] = [5], got Float [4]");
  EXPECT_EQ(error([](auto& in) { in.targets[4] = 5; }),
            "linear_cross_entropy: targets[4] is 5, but must be in [0, 5) or ignore_index = -100");
  EXPECT_EQ(error([](auto& in) { in.targets[2] = -1; }),
            "linear_cross_entropy: targets[2] is -1, but must be in [0, 5) or ignore_index = -100");
}

struct SoftInputs {
  LossInputs in;  // the member `targets` is not used
  at::Tensor ids, weights;
};

// Returns inputs with up to n target words per row, some of them equal. About a third of the places are unused, and rows 1, 6, 11, ...
// have no words.
SoftInputs random_soft_inputs(const LossShape& s, std::int64_t n, at::ScalarType dtype, bool with_bias) {
  SoftInputs out{random_loss_inputs(s, dtype, with_bias), {}, {}};
  out.ids = at::randint(s.vocabulary, {s.rows, n}, at::kLong);
  if (n > 2) out.ids.select(1, 2).copy_(out.ids.select(1, 0));
  out.weights = at::rand({s.rows, n}, at::kDouble).to(at::kFloat).to(dtype);
  const at::Tensor unused = (at::rand({s.rows, n}) < 0.3) | (at::arange(s.rows).remainder(5) == 1).unsqueeze(1);
  out.weights.masked_fill_(unused, 0);
  out.ids.masked_fill_(unused, -77);
  return out;
}

at::Tensor fused(const SoftInputs& soft, at::Reduction::Reduction reduction = at::Reduction::Mean,
                 std::optional<std::int64_t> tile = std::nullopt) {
  return linear_soft_cross_entropy(soft.in.hidden, soft.in.weight, soft.ids, soft.weights, soft.in.bias, reduction,
                                   tile);
}

// Computes the loss with full logits and targets [T, V].
at::Tensor composed(const SoftInputs& soft, const LossInputs& in, at::Reduction::Reduction reduction) {
  const at::Tensor logits = at::linear(in.hidden, in.weight, in.bias.defined() ? std::optional(in.bias) : std::nullopt);
  const at::Tensor target = at::zeros_like(logits).scatter_add(1, soft.ids.clamp_min(0),
                                                               soft.weights.to(logits.scalar_type()));
  const at::Tensor sum = -(target * logits.log_softmax(1)).sum();
  return reduction == at::Reduction::Sum ? sum : sum / std::max<std::int64_t>(1, in.hidden.size(0));
}

TEST(LinearSoftCrossEntropyOperator, MatchesTheComposedOperationsForwardAndBackward) {
  for (const LossShape& shape : kLossShapes) {
    for (const std::int64_t n : {1, 3, 40}) {
      for (const auto reduction : {at::Reduction::Mean, at::Reduction::Sum}) {
        SCOPED_TRACE(testing::Message() << "T=" << shape.rows << " V=" << shape.vocabulary << " D=" << shape.width
                                        << " n=" << n << " reduction=" << reduction);
        const SoftInputs soft = random_soft_inputs(shape, n, at::kFloat, n != 3);
        const LossInputs wide = as(soft.in, at::kDouble);
        const at::Tensor ours = fused(soft, reduction), theirs = composed(soft, wide, reduction);
        EXPECT_EQ(ours.scalar_type(), at::kFloat);
        expect_near(ours, theirs, 1e-5);
        const auto gradients = collect_gradients(ours, soft.in), wanted = collect_gradients(theirs, wide);
        const auto rounded = collect_gradients(composed(soft, soft.in, reduction), soft.in);
        for (std::size_t i = 0; i < gradients.size(); ++i)
          expect_near(gradients[i], wanted[i], 1e-5, 1.5 * largest_difference(rounded[i], wanted[i]));
      }
    }
  }
}

TEST(LinearSoftCrossEntropyOperator, GradientMatchesFiniteDifferences) {
  for (const bool with_bias : {false, true}) {
    for (const auto reduction : {at::Reduction::Mean, at::Reduction::Sum}) {
      const SoftInputs soft = random_soft_inputs({5, 6, 3}, 4, at::kDouble, with_bias);
      expect_gradients_match(soft.in.leaves(), [&] { return fused(soft, reduction) * 2; });
    }
  }
}

TEST(LinearSoftCrossEntropyOperator, TileSizeChangesNothing) {
  const SoftInputs soft = random_soft_inputs({33, 100, 8}, 5, at::kDouble, /*with_bias=*/true);
  const at::Tensor whole = fused(soft);
  const auto wanted = collect_gradients(whole, soft.in);
  for (const std::int64_t tile : {1, 100, 250, 3300}) {
    const at::Tensor ours = fused(soft, at::Reduction::Mean, tile);
    expect_near(ours, whole, 1e-14);
    const auto gradients = collect_gradients(ours, soft.in);
    for (std::size_t i = 0; i < gradients.size(); ++i) expect_near(gradients[i], wanted[i], 1e-14);
  }
}

TEST(LinearSoftCrossEntropyOperator, RowsWithoutWeightsAddZeroAndCountInTheMean) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const SoftInputs soft = random_soft_inputs({30, 50, 8}, 4, dtype, /*with_bias=*/true);
    const at::Tensor without = soft.weights.eq(0).all(1);
    SoftInputs dirty = soft;
    dirty.in.hidden = soft.in.hidden.detach().masked_fill(without.unsqueeze(1), kNaN).requires_grad_(true);
    const at::Tensor loss = fused(dirty), clean = fused(soft);
    EXPECT_TRUE(at::equal(loss, clean));
    EXPECT_TRUE(at::allclose(loss * 30, fused(soft, at::Reduction::Sum)));
    const auto gradients = collect_gradients(loss, dirty.in);
    expect_equal(gradients, collect_gradients(clean, soft.in));
    EXPECT_TRUE(gradients[0].index({without}).eq(0).all().item<bool>());
  }
}

TEST(LinearSoftCrossEntropyOperator, AllocatesNoBlockAsLargeAsTheLogits) {
  const SoftInputs soft = random_soft_inputs({2000, 49408, 4}, 77, at::kFloat, /*with_bias=*/true);
  const LargestAllocation largest;
  collect_gradients(fused(soft), soft.in);
  EXPECT_LE(largest.bytes(), 4 * 2000 * 49408 / 5);
}

TEST(LinearSoftCrossEntropyOperator, ErrorsNameWrongInputs) {
  const auto error = [](const std::function<void(SoftInputs&)>& spoil) {
    SoftInputs soft = random_soft_inputs({7, 5, 3}, 2, at::kFloat, /*with_bias=*/true);
    soft.weights.fill_(1);
    soft.ids.clamp_min_(0);
    spoil(soft);
    return error_of<c10::Error>([&] { fused(soft); });
  };
  EXPECT_EQ(error([](auto& soft) { soft.ids = soft.ids.select(1, 0); }),
            "linear_soft_cross_entropy: ids must be int64 [T, n] = [7, n] with n at least 1, got Long [7]");
  EXPECT_EQ(error([](auto& soft) { soft.weights = soft.weights.narrow(1, 0, 1); }),
            "linear_soft_cross_entropy: id_weights must be floating [7, 2] as ids is, got Float [7, 1]");
  EXPECT_EQ(error([](auto& soft) { soft.ids[4][1] = 5; }),
            "linear_soft_cross_entropy: ids[4, 1] is 5, but must be in [0, 5) where its weight is not 0");
  EXPECT_EQ(error([](auto& soft) { soft.in.weight = soft.in.weight.to(at::kDouble); }),
            "linear_soft_cross_entropy: weight must be Float [V, D] = [V, 3] as hidden is, got Double [5, 3]");
}

}  // namespace
}  // namespace tessera
