#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/support/error_of.h"
#include "tests/support/gradcheck.h"
#include <tessera/ops/sparsify_group.h>

namespace tessera {
namespace {

struct Sample {
  at::Tensor text, image, mask;
};

Sample random_sample(std::int64_t batch, std::int64_t words, std::int64_t patches, std::int64_t width) {
  at::manual_seed(3);
  return {at::randn({batch, words, width}, at::kDouble).requires_grad_(true),
          at::randn({batch, patches, width}, at::kDouble).requires_grad_(true), at::rand({batch, words}) < 0.7};
}

// Computes the definition (SPARC, eq. 2-5) number by number.
at::Tensor naive(const Sample& s, double threshold) {
  at::Tensor out = at::zeros(s.text.sizes(), at::kDouble);
  for (std::int64_t b = 0; b < s.text.size(0); ++b)
    for (std::int64_t j = 0; j < s.text.size(1); ++j) {
      if (!s.mask[b][j].item<bool>()) continue;
      const at::Tensor scores = at::mv(s.image[b].detach(), s.text[b][j].detach());
      const double low = scores.min().item<double>(), high = scores.max().item<double>();
      std::vector<double> weights;
      double sum = 0;
      for (std::int64_t k = 0; k < scores.size(0); ++k) {
        const double z = (scores[k].item<double>() - low) / (high - low);
        weights.push_back(z >= threshold ? z : 0);
        sum += weights.back();
      }
      for (std::int64_t k = 0; k < scores.size(0); ++k)
        out[b][j] += weights[static_cast<std::size_t>(k)] / sum * s.image[b][k].detach();
    }
  return out;
}

TEST(SparsifyGroup, MatchesTheDefinition) {
  const Sample s = random_sample(3, 4, 7, 5);
  for (const std::optional<double> threshold :
       {std::optional<double>(), std::optional<double>(0.5), std::optional<double>(1.0), std::optional<double>(0.0)}) {
    SparsifySettings settings;
    settings.threshold = threshold;
    EXPECT_TRUE(at::allclose(sparsify_group(s.text, s.image, s.mask, settings), naive(s, threshold.value_or(1.0 / 7)),
                             1e-10, 1e-12));
  }
}

TEST(SparsifyGroup, GradientsMatchFiniteDifferences) {
  const Sample s = random_sample(2, 3, 4, 3);
  const at::Tensor weight = at::randn({2, 3, 3}, at::kDouble);
  for (const char* kind : {"minmax", "softmax"}) {
    SparsifySettings settings;
    settings.weights = kind;
    expect_gradients_match({s.text, s.image},
                           [&] { return (sparsify_group(s.text, s.image, s.mask, settings) * weight).sum(); });
  }
}

TEST(SparsifyGroup, TiesShareTheSubgradientEqually) {
  // Patches 0 and 1 are equal and the best; patches 2 and 3 are equal and the worst.
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

}  // namespace
}  // namespace tessera
