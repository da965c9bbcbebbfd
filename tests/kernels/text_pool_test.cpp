#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "tests/kernels/backend.h"
#include "tests/kernels/sparsify_group_case.h"

namespace tessera::kernels::test {
namespace {

std::vector<float> scaled_values(std::int64_t count, int seed, float scale) {
  std::vector<float> values = normal_values(count, seed);
  for (float& value : values) value *= scale;
  return values;
}

std::vector<float> unit_values(std::int64_t rows, std::int64_t width, int seed) {
  std::vector<float> values = normal_values(rows * width, seed);
  for (std::int64_t row = 0; row < rows; ++row) {
    double square = 0;
    for (std::int64_t i = 0; i < width; ++i) square += std::pow(values[row * width + i], 2);
    for (std::int64_t i = 0; i < width; ++i) values[row * width + i] /= static_cast<float>(std::sqrt(square));
  }
  return values;
}

struct PairInputs {
  std::int64_t rows, width;
  std::vector<float> pooled, text;
  std::vector<std::int8_t> labels;
  float scale = 14.0f, bias = -10.0f;
};

struct PairResults {
  std::vector<float> losses, of_scale, of_bias, pooled, text;
};

/// Returns random pairs whose labels are 1, 0, -1, 1, 0, -1 and so on.
PairInputs random_pairs(std::int64_t rows, std::int64_t width, float length = 1.0f) {
  PairInputs in{rows, width, scaled_values(rows * width, 3, length), unit_values(rows, width, 4), {}};
  for (std::int64_t row = 0; row < rows; ++row) in.labels.push_back(static_cast<std::int8_t>(1 - row % 3));
  return in;
}

class TextPoolKernel : public KernelTest {
 protected:
  std::vector<float> softmax(std::int64_t rows, std::int64_t patches, const std::vector<float>& scores, bool zero) {
    const auto buffer = on.allocate(to_bytes(scores, DataType::kFloat32));
    expect_ok(on.patch_softmax({rows, patches, zero, static_cast<float*>(buffer->data())}));
    return from_bytes(buffer->read(), DataType::kFloat32);
  }

  PairResults decide(const PairInputs& in, bool gradient) {
    const auto floats = [&](const std::vector<float>& values) { return on.allocate(to_bytes(values, DataType::kFloat32)); };
    std::vector<unsigned char> label_bytes(in.labels.size());
    std::copy(in.labels.begin(), in.labels.end(), reinterpret_cast<std::int8_t*>(label_bytes.data()));
    const std::vector<float> nothing(in.rows, NAN);
    const auto pooled = floats(in.pooled), text = floats(in.text), losses = floats(nothing), of_scale = floats(nothing),
               of_bias = floats(nothing), scale = floats({in.scale}), bias = floats({in.bias});
    const auto labels = on.allocate(label_bytes);
    const auto pointer = [](const auto& buffer) { return static_cast<float*>(buffer->data()); };
    PooledPairs call;
    call.rows = in.rows;
    call.width = in.width;
    call.pooled = pointer(pooled);
    call.text = pointer(text);
    call.labels = static_cast<const std::int8_t*>(labels->data());
    call.scale = pointer(scale);
    call.bias = pointer(bias);
    call.losses = pointer(losses);
    call.of_scale = pointer(of_scale);
    call.of_bias = pointer(of_bias);
    call.gradient = gradient;
    expect_ok(on.pooled_pairs(call));
    const auto values = [](const auto& buffer) { return from_bytes(buffer->read(), DataType::kFloat32); };
    return {values(losses), values(of_scale), values(of_bias), values(pooled), values(text)};
  }
};
INSTANTIATE_TEST_SUITE_P(On, TextPoolKernel, testing::ValuesIn(backend_names()), test_name<std::string>);

TEST_P(TextPoolKernel, SoftmaxMatchesItsDefinitionAtManyShapesAndScales) {
  const std::int64_t shapes[][2] = {{1, 1}, {3, 2}, {5, 15}, {4, 16}, {2, 17}, {9, 64}, {33, 196}, {2, 577}};
  for (const auto& [rows, patches] : shapes) {
    for (const float scale : {0.0f, 1.0f, 30.0f, 1e4f}) {
      for (const bool zero : {false, true}) {
        const std::vector<float> scores = scaled_values(rows * patches, 1, scale);
        std::vector<double> expected(scores.size());
        for (std::int64_t row = 0; row < rows; ++row) {
          const float* const s = scores.data() + row * patches;
          const double top = std::max<double>(*std::max_element(s, s + patches), zero ? 0.0 : -1e30);
          double sum = zero ? std::exp(-top) : 0.0;
          for (std::int64_t p = 0; p < patches; ++p) sum += std::exp(s[p] - top);
          for (std::int64_t p = 0; p < patches; ++p) expected[row * patches + p] = std::exp(s[p] - top) / sum;
        }
        SCOPED_TRACE(testing::Message() << rows << " x " << patches << ", scale " << scale << ", zero token " << zero);
        expect_close("weights", softmax(rows, patches, scores, zero), expected, 1e-6);
      }
    }
  }
}

TEST_P(TextPoolKernel, TextWithoutAMatchAttendsOnlyToTheZeroToken) {
  const std::vector<float> weights = softmax(1, 20, std::vector<float>(20, -200.0f), true);
  EXPECT_EQ(weights, std::vector<float>(20, 0.0f));
  expect_close("without it", softmax(1, 20, std::vector<float>(20, -200.0f), false), std::vector<double>(20, 0.05), 1e-6);
}

TEST_P(TextPoolKernel, GradientOfTheSoftmaxMatchesItsDefinition) {
  const std::int64_t shapes[][2] = {{1, 1}, {3, 7}, {5, 16}, {4, 70}, {33, 196}};
  for (const auto& [rows, patches] : shapes) {
    const std::vector<float> weights = softmax(rows, patches, scaled_values(rows * patches, 1, 2.0f), true),
                             gradient = scaled_values(rows * patches, 2, 1.0f);
    std::vector<double> expected(weights.size());
    for (std::int64_t row = 0; row < rows; ++row) {
      double mean = 0;
      for (std::int64_t i = row * patches; i < (row + 1) * patches; ++i) mean += static_cast<double>(weights[i]) * gradient[i];
      for (std::int64_t i = row * patches; i < (row + 1) * patches; ++i) expected[i] = weights[i] * (gradient[i] - mean);
    }
    const auto given = on.allocate(to_bytes(weights, DataType::kFloat32)),
               to = on.allocate(to_bytes(gradient, DataType::kFloat32));
    expect_ok(on.patch_softmax_backward(
        {rows, patches, static_cast<const float*>(given->data()), static_cast<float*>(to->data())}));
    expect_close("gradient", from_bytes(to->read(), DataType::kFloat32), expected, 1e-6);
  }
}

TEST_P(TextPoolKernel, PairsMatchTheirDefinitionWithGradients) {
  const std::int64_t shapes[][2] = {{1, 1}, {3, 8}, {7, 33}, {40, 512}, {5, 700}};
  for (const auto& [rows, width] : shapes) {
    for (const float length : {1e-3f, 1.0f, 50.0f}) {
      SCOPED_TRACE(testing::Message() << rows << " x " << width << ", length " << length);
      const PairInputs in = random_pairs(rows, width, length);
      std::vector<double> losses, of_scale, of_bias, pooled(in.pooled.size()), text(in.text.size());
      for (std::int64_t row = 0; row < rows; ++row) {
        const float *y = in.pooled.data() + row * width, *t = in.text.data() + row * width;
        double with_text = 0, square = 0;
        for (std::int64_t i = 0; i < width; ++i) {
          with_text += static_cast<double>(y[i]) * t[i];
          square += static_cast<double>(y[i]) * y[i];
        }
        const double norm = std::sqrt(square), cosine = with_text / norm, label = in.labels[row];
        const double against = -label * (in.scale * cosine + in.bias);
        const double of_logit = -label / (1 + std::exp(-against)), of_cosine = of_logit * in.scale;
        losses.push_back(label == 0 ? 0 : std::log1p(std::exp(against)));
        of_scale.push_back(of_logit * cosine);
        of_bias.push_back(of_logit);
        for (std::int64_t i = 0; i < width; ++i) {
          pooled[row * width + i] = of_cosine * (t[i] - cosine * y[i] / norm) / norm;
          text[row * width + i] = of_cosine * y[i] / norm;
        }
      }
      const PairResults ours = decide(in, true);
      expect_close("losses", ours.losses, losses, 2e-6);
      expect_close("scale", ours.of_scale, of_scale, 2e-6);
      expect_close("bias", ours.of_bias, of_bias, 2e-6);
      expect_close("pooled", ours.pooled, pooled, 2e-6);
      expect_close("text", ours.text, text, 2e-6);
      const PairResults without = decide(in, false);
      EXPECT_EQ(without.losses, ours.losses);
      EXPECT_EQ(without.pooled, in.pooled);
      EXPECT_EQ(without.text, in.text);
    }
  }
}

TEST_P(TextPoolKernel, PooledZerosHaveCosineZeroAndFiniteGradients) {
  PairInputs in = random_pairs(2, 16);
  std::fill(in.pooled.begin(), in.pooled.end(), 0.0f);
  in.labels = {1, -1};
  const PairResults ours = decide(in, true);
  expect_close("losses", ours.losses, {10.0000453989, 4.53989e-05}, 1e-6);
  for (const float value : ours.pooled) EXPECT_TRUE(std::isfinite(value));
  EXPECT_EQ(ours.text, std::vector<float>(32, 0.0f));
}

TEST_P(TextPoolKernel, ErrorsNameBadArguments) {
  float value = 0.0f;
  EXPECT_EQ(on.patch_softmax({-1, 1, true, &value}).message(), "text_conditioned_pool: rows must be at least 0, but is -1");
  EXPECT_EQ(on.patch_softmax({1, 0, true, &value}).message(),
            "text_conditioned_pool: patches must be at least 1, but is 0");
  EXPECT_EQ(on.patch_softmax({1, 1, true, nullptr}).message(), "text_conditioned_pool: scores is a null pointer");
  EXPECT_EQ(on.patch_softmax_backward({1, 1, nullptr, &value}).message(),
            "text_conditioned_pool: weights is a null pointer");
  PooledPairs pairs;
  pairs.rows = pairs.width = 1;
  pairs.pooled = pairs.text = &value;
  EXPECT_EQ(on.pooled_pairs(pairs).message(), "text_conditioned_pool: labels is a null pointer");
  EXPECT_TRUE(on.patch_softmax({0, 4, true, nullptr}).ok());
}

}  // namespace
}  // namespace tessera::kernels::test
