#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "src/models/autocast.h"
#include "tests/ops/largest_allocation.h"
#include "tests/support/error_of.h"
#include "tests/support/gradcheck.h"
#include <tessera/ops/sparsify_group.h>

namespace tessera {
namespace {

struct GroupSample {
  at::Tensor text, image, mask, cotangent;

  GroupSample to(at::ScalarType dtype, at::Device device = at::kCPU) const {
    const auto leaf = [&](const at::Tensor& x) { return x.detach().to(device, dtype).requires_grad_(true); };
    return {leaf(text), leaf(image), mask.to(device), cotangent.to(device, dtype)};
  }
};

GroupSample random_sample(std::int64_t batch, std::int64_t words, std::int64_t patches, std::int64_t width) {
  at::manual_seed(3);
  // bfloat16 can represent these numbers, so every type starts from the same values.
  const auto numbers = [&](at::IntArrayRef shape) { return at::randn(shape).to(at::kBFloat16).to(at::kDouble); };
  return {numbers({batch, words, width}), numbers({batch, patches, width}), at::rand({batch, words}) < 0.7,
          numbers({batch, words, width})};
}

TEST(SparsifyGroup, GradientsMatchFiniteDifferences) {
  const GroupSample s = random_sample(2, 3, 4, 3).to(at::kDouble);
  for (const char* kind : {"minmax", "softmax"}) {
    SparsifySettings settings;
    settings.weights = kind;
    expect_gradients_match({s.text, s.image},
                           [&] { return (sparsify_group(s.text, s.image, s.mask, settings) * s.cotangent).sum(); });
  }
}

TEST(SparsifyGroup, TiesShareTheSubgradientEqually) {
  // Patches 0 and 1 are equal and most similar to the token; patches 2 and 3 are equal and least similar to it.
  const at::Tensor text = at::tensor({1.0, 2.0}).view({1, 1, 2}).requires_grad_(true);
  const at::Tensor image =
      at::tensor({2.0, 1.0, 2.0, 1.0, 0.0, -1.0, 0.0, -1.0, 1.0, 0.0}).view({1, 5, 2}).requires_grad_(true);
  const at::Tensor grouped = sparsify_group(text, image, at::ones({1, 1}, at::kBool), {});
  const auto gradient = torch::autograd::grad({(grouped * at::tensor({1.0, -3.0})).sum()}, {image})[0][0];
  EXPECT_TRUE(at::allclose(gradient[0], gradient[1]));
  EXPECT_TRUE(at::allclose(gradient[2], gradient[3]));
  EXPECT_GT(gradient[2].abs().sum().item<double>(), 0) << "the minimum has a gradient although its weight is 0";
}

TEST(SparsifyGroup, FlatRowsAreUniformWithoutGradientThroughTheWeights) {
  const at::Tensor text = at::zeros({1, 2, 3}, at::kDouble).requires_grad_(true);
  const at::Tensor image = at::randn({1, 4, 3}, at::kDouble).requires_grad_(true);
  const at::Tensor mask = at::ones({1, 2}, at::kBool);
  const at::Tensor grouped = sparsify_group(text, image, mask, {});
  EXPECT_TRUE(at::allclose(grouped[0][0], image[0].mean(0)));
  const auto gradients = torch::autograd::grad({grouped.sum()}, {text, image});
  EXPECT_EQ(gradients[0].abs().max().item<double>(), 0);
  EXPECT_TRUE(at::allclose(gradients[1], at::full_like(image, 0.5)));
  EXPECT_TRUE(at::allclose(sparsify_weights(text, image, mask, {}), at::full({1, 2, 4}, 0.25, at::kDouble)));
}

TEST(SparsifyGroup, KeepsWeightsEqualToTheThreshold) {
  // The similarities 0, 1 and 4 give z = 0, 0.25 and 1.
  const at::Tensor image = at::tensor({0.0F, 1.0F, 4.0F}).view({1, 3, 1});
  SparsifySettings settings;
  settings.threshold = 0.25;
  const at::Tensor weights = sparsify_weights(at::ones({1, 1, 1}), image, at::ones({1, 1}, at::kBool), settings);
  EXPECT_TRUE(at::allclose(weights.flatten(), at::tensor({0.0F, 0.2F, 0.8F})));
}

TEST(SparsifyGroup, ErrorsNameWrongInputs) {
  const auto error = [](const at::Tensor& text, const at::Tensor& image, const at::Tensor& mask,
                        const SparsifySettings& settings = {}) {
    return error_of<c10::Error>([&] { sparsify_group(text, image, mask, settings); });
  };
  const at::Tensor text = at::zeros({2, 3, 4}), image = at::zeros({2, 5, 4}), mask = at::ones({2, 3}, at::kBool);
  EXPECT_EQ(error(at::zeros({3, 4}), image, mask), "sparsify_group: text_tokens must be [B, L, D], got [3, 4]");
  EXPECT_EQ(error(text, at::zeros({2, 5, 3}), mask),
            "sparsify_group: image_tokens must be [B, P, D] = [2, P, 4], got [2, 5, 3]");
  EXPECT_EQ(error(text, at::zeros({2, 0, 4}), mask),
            "sparsify_group: image_tokens must hold at least one patch, got [2, 0, 4]");
  EXPECT_EQ(error(text, image, at::ones({2, 2}, at::kBool)),
            "sparsify_group: text_mask must be [B, L] = [2, 3], got [2, 2]");
  EXPECT_EQ(error(text, image, at::ones({2, 3})), "sparsify_group: text_mask must be bool, got Float");
  EXPECT_EQ(error(text.to(at::kLong), image, mask),
            "sparsify_group: text_tokens and image_tokens must hold floating-point numbers, got Long and Float");
  EXPECT_EQ(error(text, at::zeros({2, 5, 4}, at::kMeta), mask),
            "sparsify_group: text_tokens, image_tokens and text_mask must be on one device, got cpu, meta and cpu");
  EXPECT_EQ(error(text, image, mask, {.weights = "max"}), "sparsify_group: weights must be minmax or softmax, got max");
  EXPECT_EQ(error(text, image, mask, {.threshold = 2.0}), "sparsify_group: threshold must be in [0, 1], got 2");
  EXPECT_EQ(error(text, image, mask, {.softmax_temperature = 0.0}),
            "sparsify_group: softmax_temperature must be above 0, got 0");
}

// The fused operator in float32 and bfloat16 must match the composed operations in float64. The golden cases also test the fused operator.

struct GroupOutcome {
  at::Tensor grouped, grad_text, grad_image;
};

GroupOutcome evaluate(const GroupSample& s, const SparsifySettings& settings = {}) {
  const at::Tensor grouped = sparsify_group(s.text, s.image, s.mask, settings);
  const auto gradients = torch::autograd::grad({grouped}, {s.text, s.image}, {s.cotangent});
  return {grouped.detach(), gradients[0], gradients[1]};
}

void expect_close(const char* what, const at::Tensor& ours, const at::Tensor& theirs, double tolerance) {
  ASSERT_EQ(ours.sizes(), theirs.sizes()) << what;
  if (ours.numel() == 0) return;
  const double error = (ours.to(at::kCPU, at::kDouble) - theirs.to(at::kCPU, at::kDouble)).abs().max().item<double>();
  EXPECT_LE(error, tolerance * (1 + theirs.abs().max().item<double>())) << what;
}

void expect_close(const GroupOutcome& ours, const GroupOutcome& theirs, double tolerance = 1e-5) {
  expect_close("grouped", ours.grouped, theirs.grouped, tolerance);
  expect_close("gradient of text_tokens", ours.grad_text, theirs.grad_text, tolerance);
  expect_close("gradient of image_tokens", ours.grad_image, theirs.grad_image, tolerance);
}

std::vector<SparsifySettings> all_settings() {
  return {{},
          {.threshold = 0.5},
          {.threshold = 1.0},
          {.sparsify = false},
          {.weights = "softmax"},
          {.weights = "softmax", .softmax_temperature = 3.0}};
}

const std::vector<std::vector<std::int64_t>> kGroupShapes = {
    {2, 5, 7, 8}, {3, 17, 20, 13}, {1, 1, 1, 8},     {2, 4, 1100, 3}, {2, 0, 4, 8},
    {0, 3, 4, 8}, {2, 3, 4, 0},    {1, 130, 33, 40}, {2, 3, 9, 1},
};

TEST(FusedSparsifyGroup, MatchesTheComposedOperations) {
  for (const auto& shape : kGroupShapes) {
    const GroupSample sample = random_sample(shape[0], shape[1], shape[2], shape[3]);
    for (const SparsifySettings& settings : all_settings()) {
      SCOPED_TRACE(testing::Message() << at::IntArrayRef(shape) << " " << settings.weights);
      expect_close(evaluate(sample.to(at::kFloat), settings), evaluate(sample.to(at::kDouble), settings));
    }
  }
}

TEST(FusedSparsifyGroup, SingleGradientsAreTheSame) {
  const GroupSample s = random_sample(2, 5, 7, 8).to(at::kFloat);
  const GroupOutcome both = evaluate(s);
  const auto alone = [&](const at::Tensor& text, const at::Tensor& image, const at::Tensor& leaf) {
    return torch::autograd::grad({sparsify_group(text, image, s.mask, {})}, {leaf}, {s.cotangent})[0];
  };
  EXPECT_TRUE(at::equal(alone(s.text, s.image.detach(), s.text), both.grad_text));
  EXPECT_TRUE(at::equal(alone(s.text.detach(), s.image, s.image), both.grad_image));
}

TEST(FusedSparsifyGroup, AcceptsNonContiguousTensors) {
  const GroupSample plain = random_sample(3, 5, 7, 8).to(at::kFloat);
  const GroupOutcome expected = evaluate(plain);
  const auto strided = [](const at::Tensor& x) { return x.detach().mT().contiguous().mT().requires_grad_(true); };
  expect_close(evaluate({strided(plain.text), strided(plain.image), plain.mask.t().contiguous().t(),
                         plain.cotangent.mT().contiguous().mT()}),
               expected, 0);
  // Tests tokens in every second row of a larger tensor, and then the patches of one image, expanded (stride 0) over the batch.
  const auto spread = [](const at::Tensor& x) {
    return at::stack({x.detach(), at::full_like(x, std::nan(""))}, 2).select(2, 0).requires_grad_(true);
  };
  expect_close(evaluate({spread(plain.text), spread(plain.image), plain.mask, plain.cotangent}), expected, 0);
  GroupSample shared = plain;
  shared.image = plain.image.detach().slice(0, 0, 1).expand({3, 7, 8}).requires_grad_(true);
  GroupSample copied = plain;
  copied.image = shared.image.detach().contiguous().requires_grad_(true);
  expect_close(evaluate(shared), evaluate(copied), 0);
  // The gradient that sum() passes to the operator is a single number, expanded to the shape of the output.
  const auto of_sum =
      torch::autograd::grad({sparsify_group(plain.text, plain.image, plain.mask, {}).sum()}, {plain.text, plain.image});
  GroupSample ones = plain;
  ones.cotangent = at::ones_like(plain.cotangent);
  EXPECT_TRUE(at::equal(of_sum[1], evaluate(ones).grad_image));
}

TEST(FusedSparsifyGroup, ResultHasTheWiderTypeOfTheTokens) {
  const GroupSample s = random_sample(2, 3, 6, 8);
  const auto type_of = [&](at::ScalarType text, at::ScalarType image) {
    return sparsify_group(s.text.to(text), s.image.to(image), s.mask, {}).scalar_type();
  };
  EXPECT_EQ(type_of(at::kBFloat16, at::kBFloat16), at::kBFloat16);
  EXPECT_EQ(type_of(at::kHalf, at::kHalf), at::kHalf);
  EXPECT_EQ(type_of(at::kBFloat16, at::kFloat), at::kFloat);
  EXPECT_EQ(type_of(at::kHalf, at::kBFloat16), at::kFloat);
  EXPECT_EQ(type_of(at::kFloat, at::kDouble), at::kDouble);
}

TEST(FusedSparsifyGroup, BFloat16IsAccumulatedInFloat) {
  const GroupSample s = random_sample(2, 5, 20, 64);
  const GroupOutcome ours = evaluate(s.to(at::kBFloat16)), theirs = evaluate(s.to(at::kFloat));
  // On the CPU, only the final results are rounded to bfloat16.
  EXPECT_TRUE(at::equal(ours.grouped, theirs.grouped.to(at::kBFloat16)));
  EXPECT_TRUE(at::equal(ours.grad_text, theirs.grad_text.to(at::kBFloat16)));
  EXPECT_TRUE(at::equal(ours.grad_image, theirs.grad_image.to(at::kBFloat16)));
  expect_close(evaluate(s.to(at::kHalf)), theirs, 1e-3);
}

TEST(FusedSparsifyGroup, AutocastChangesNothing) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const GroupSample s = random_sample(2, 5, 7, 8).to(dtype);
    const GroupOutcome expected = evaluate(s);
    const Autocast autocast(at::kCPU);
    const at::Tensor ours = sparsify_group(s.text, s.image, s.mask, {});
    EXPECT_EQ(ours.scalar_type(), dtype);
    EXPECT_TRUE(at::equal(ours, expected.grouped));
  }
}

TEST(FusedSparsifyGroup, NeitherPassHoldsTheSimilarities) {
  const GroupSample s = random_sample(64, 40, 60, 8).to(at::kFloat);
  const std::int64_t similarities = 64 * 40 * 60 * 4, largest_input = 64 * 60 * 8 * 4;
  const LargestAllocation allocation;
  evaluate(s);
  EXPECT_LE(allocation.bytes(), largest_input);
  EXPECT_LT(largest_input, similarities);
}

TEST(FusedSparsifyGroup, RejectsSecondDerivatives) {
  const GroupSample s = random_sample(1, 2, 3, 8).to(at::kFloat);
  const at::Tensor grouped = sparsify_group(s.text, s.image, s.mask, {});
  EXPECT_EQ(error_of<c10::Error>([&] { torch::autograd::grad({grouped}, {s.text}, {s.cotangent}, true, /*create_graph=*/true); }),
            "sparsify_group has no second derivatives in float32 and bfloat16: give it float64 tokens");
}

class FusedSparsifyGroupOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!at::globalContext().hasCUDA()) GTEST_SKIP() << "no GPU";
  }
};

TEST_F(FusedSparsifyGroupOnGpu, MatchesTheCpu) {
  for (const auto& shape : kGroupShapes) {
    const GroupSample sample = random_sample(shape[0], shape[1], shape[2], shape[3]);
    for (const SparsifySettings& settings : all_settings()) {
      SCOPED_TRACE(testing::Message() << at::IntArrayRef(shape) << " " << settings.weights);
      const GroupOutcome theirs = evaluate(sample.to(at::kDouble), settings);
      expect_close(evaluate(sample.to(at::kFloat, at::kCUDA), settings), theirs, 1e-4);
    }
  }
}

TEST_F(FusedSparsifyGroupOnGpu, BFloat16MatchesTheCpu) {
  const GroupSample sample = random_sample(3, 33, 196, 64);
  // Softmax weights change continuously, so rounding a similarity differently has only a small effect.
  const SparsifySettings settings = {.weights = "softmax", .softmax_temperature = 8.0};
  expect_close(evaluate(sample.to(at::kBFloat16, at::kCUDA), settings), evaluate(sample.to(at::kDouble), settings),
               2e-2);
}

TEST_F(FusedSparsifyGroupOnGpu, ErrorNamesTensorsOnTwoDevices) {
  const GroupSample s = random_sample(2, 3, 4, 8);
  EXPECT_EQ(error_of<c10::Error>([&] { sparsify_group(s.text.to(at::kCUDA), s.image, s.mask, {}); }),
            "sparsify_group: text_tokens, image_tokens and text_mask must be on one device, got cuda:0, cpu and cpu");
}

}  // namespace
}  // namespace tessera
