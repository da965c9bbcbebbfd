#pragma once

#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "tests/kernels/backend.h"

namespace tessera::kernels::test {

struct SparsifyGroupInputs {
  SparsifyGroupProblem problem;
  std::vector<float> text, image, grad;  // [B, L, D], [B, P, D], [B, L, D]
  std::vector<std::uint8_t> mask;        // [B, L]; empty means no mask
  int row_padding = 0;                   // unused elements after each row of inputs and outputs
};

struct SparsifyGroupResults {
  std::vector<float> grouped, weights, row_statistics, grad_text, grad_image;
};

inline void expect_equal(const SparsifyGroupResults& ours, const SparsifyGroupResults& theirs) {
  EXPECT_EQ(ours.grouped, theirs.grouped);
  EXPECT_EQ(ours.weights, theirs.weights);
  EXPECT_EQ(ours.row_statistics, theirs.row_statistics);
  EXPECT_EQ(ours.grad_text, theirs.grad_text);
  EXPECT_EQ(ours.grad_image, theirs.grad_image);
}

/// Adds `padding` NaN elements after each row.
inline std::vector<float> spread(const std::vector<float>& rows, std::int64_t width, int padding) {
  std::vector<float> result;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    result.push_back(rows[i]);
    if (static_cast<std::int64_t>(i + 1) % width == 0) result.insert(result.end(), padding, NAN);
  }
  return result;
}
inline std::vector<float> gathered(const std::vector<float>& spread_rows, std::int64_t width, int padding) {
  std::vector<float> result;
  for (std::size_t i = 0; i < spread_rows.size(); ++i) {
    const bool inside = static_cast<std::int64_t>(i) % (width + padding) < width;
    if (inside) {
      result.push_back(spread_rows[i]);
    } else {
      EXPECT_TRUE(std::isnan(spread_rows[i])) << "an element between two rows was overwritten";
    }
  }
  return result;
}

/// Runs the forward and backward kernels of `on`. Outputs are NaN until the kernels write them.
inline SparsifyGroupResults run(const Backend& on, const SparsifyGroupInputs& inputs) {
  const SparsifyGroupProblem& problem = inputs.problem;
  const DataType type = problem.type;
  const std::int64_t stride = problem.width + inputs.row_padding;
  const std::int64_t token_rows = problem.batch * problem.tokens, patch_rows = problem.batch * problem.patches;
  const auto matrix = [&](const std::vector<float>& rows) {
    return on.allocate(to_bytes(spread(rows, problem.width, inputs.row_padding), type));
  };
  const auto empty = [&](std::int64_t rows) { return matrix(std::vector<float>(rows * problem.width, NAN)); };
  const auto floats = [&](std::int64_t count) {
    return on.allocate(to_bytes(std::vector<float>(count, NAN), DataType::kFloat32));
  };
  auto text = matrix(inputs.text), image = matrix(inputs.image), grad = matrix(inputs.grad);
  auto grouped = empty(token_rows), grad_text = empty(token_rows), grad_image = empty(patch_rows);
  auto statistics = floats(token_rows * kRowStatistics), weights = floats(token_rows * problem.patches);
  auto mask = on.allocate(inputs.mask);
  auto workspace =
      on.allocate(std::vector<unsigned char>(std::max(on.sparsify_group_workspace(problem, Pass::kForward),
                                                      on.sparsify_group_workspace(problem, Pass::kBackward)),
                                             0xff));

  SparsifyGroupForward forward;
  forward.problem = problem;
  forward.text_tokens = {text->data(), problem.tokens * stride, stride};
  forward.image_tokens = {image->data(), problem.patches * stride, stride};
  forward.text_mask = inputs.mask.empty() ? nullptr : static_cast<const std::uint8_t*>(mask->data());
  forward.grouped = {grouped->data(), problem.tokens * stride, stride};
  forward.row_statistics = static_cast<float*>(statistics->data());
  forward.weights = static_cast<float*>(weights->data());
  forward.workspace = workspace->data();
  expect_ok(on.sparsify_group_forward(forward));

  SparsifyGroupBackward backward;
  backward.problem = problem;
  backward.text_tokens = forward.text_tokens;
  backward.image_tokens = forward.image_tokens;
  backward.text_mask = forward.text_mask;
  backward.grad_grouped = {grad->data(), problem.tokens * stride, stride};
  backward.row_statistics = forward.row_statistics;
  backward.grad_text_tokens = {grad_text->data(), problem.tokens * stride, stride};
  backward.grad_image_tokens = {grad_image->data(), problem.patches * stride, stride};
  backward.workspace = workspace->data();
  expect_ok(on.sparsify_group_backward(backward));

  const auto rows = [&](Buffer& buffer) {
    return gathered(from_bytes(buffer.read(), type), problem.width, inputs.row_padding);
  };
  return {rows(*grouped), from_bytes(weights->read(), DataType::kFloat32),
          from_bytes(statistics->read(), DataType::kFloat32), rows(*grad_text), rows(*grad_image)};
}

struct SparsifyGroupExpected {
  std::vector<double> grouped, weights, grad_text, grad_image;
};

/// Computes the results and gradients by the definition, with loops in float64. Differentiates each step of the forward pass separately:
/// the division by the range, the minimum and maximum (whose gradient is shared among ties), and the sum.
inline SparsifyGroupExpected naive(const SparsifyGroupInputs& inputs) {
  const auto& [B, L, P, D, type, kind, threshold, temperature, tf32, configuration, block_memory] = inputs.problem;
  const std::vector<float> t = rounded(inputs.text, type), v = rounded(inputs.image, type),
                           g = rounded(inputs.grad, type);
  SparsifyGroupExpected out{std::vector<double>(B * L * D), std::vector<double>(B * L * P),
                            std::vector<double>(B * L * D), std::vector<double>(B * P * D)};
  for (std::int64_t row = 0; row < B * L; ++row) {
    if (!inputs.mask.empty() && inputs.mask[row] == 0) continue;
    const std::int64_t first_patch = row / L * P;
    std::vector<double> s(P), z(P), kept(P), a(P), da(P), ds(P);
    for (std::int64_t p = 0; p < P; ++p) {
      for (std::int64_t d = 0; d < D; ++d) {
        s[p] += static_cast<double>(t[row * D + d]) * v[(first_patch + p) * D + d];
        da[p] += static_cast<double>(g[row * D + d]) * v[(first_patch + p) * D + d];
      }
    }
    const double low = *std::min_element(s.begin(), s.end()), high = *std::max_element(s.begin(), s.end());
    const bool softmax = kind == PatchWeights::kSoftmax;
    const bool flat = !softmax && high - low <= 1e-6 * std::max(std::abs(low), std::abs(high));
    double sum = 0.0, mean = 0.0;
    for (std::int64_t p = 0; p < P; ++p) {
      z[p] = softmax ? std::exp((s[p] - high) / temperature) : (s[p] - low) / (high - low);
      kept[p] = softmax || z[p] >= threshold ? z[p] : 0.0;
      sum += kept[p];
    }
    for (std::int64_t p = 0; p < P; ++p) {
      a[p] = flat ? 1.0 / static_cast<double>(P) : kept[p] / sum;
      mean += a[p] * da[p];
    }
    const double lows = static_cast<double>(std::count(s.begin(), s.end(), low));
    const double highs = static_cast<double>(std::count(s.begin(), s.end(), high));
    double d_low = 0.0, d_high = 0.0;
    for (std::int64_t p = 0; p < P && !flat; ++p) {
      const double d_kept = (da[p] - mean) / sum;
      if (softmax) {
        ds[p] = a[p] * (da[p] - mean) / temperature;
      } else if (z[p] >= threshold) {
        ds[p] += d_kept / (high - low);
        d_low += d_kept * (z[p] - 1.0) / (high - low);
        d_high -= d_kept * z[p] / (high - low);
      }
    }
    for (std::int64_t p = 0; p < P && !flat && !softmax; ++p) {
      ds[p] += (s[p] == low ? d_low / lows : 0.0) + (s[p] == high ? d_high / highs : 0.0);
    }
    for (std::int64_t p = 0; p < P; ++p) {
      out.weights[row * P + p] = a[p];
      for (std::int64_t d = 0; d < D; ++d) {
        out.grouped[row * D + d] += a[p] * v[(first_patch + p) * D + d];
        out.grad_text[row * D + d] += ds[p] * v[(first_patch + p) * D + d];
        out.grad_image[(first_patch + p) * D + d] += a[p] * g[row * D + d] + ds[p] * t[row * D + d];
      }
    }
  }
  return out;
}

inline std::vector<float> normal_values(std::int64_t count, unsigned seed, float scale = 1.0f) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(count);
  for (float& value : values) value = normal(generator);
  return values;
}

inline SparsifyGroupInputs random_inputs(const SparsifyGroupProblem& problem, bool masked, unsigned seed = 1) {
  SparsifyGroupInputs inputs;
  inputs.problem = problem;
  inputs.text = normal_values(problem.batch * problem.tokens * problem.width, seed);
  inputs.image = normal_values(problem.batch * problem.patches * problem.width, seed + 1);
  inputs.grad = normal_values(problem.batch * problem.tokens * problem.width, seed + 2);
  if (masked) {
    std::mt19937 generator(seed + 3);
    for (std::int64_t i = 0; i < problem.batch * problem.tokens; ++i)
      inputs.mask.push_back(generator() % 3 != 0 ? 1 : 0);
  }
  return inputs;
}

/// Returns the tolerance of the results. For bfloat16, it allows for the rounding of the results. With `rounds_weights`, it also allows for
/// the rounding of the weights and of the similarities' gradients, which are factors of matrix products.
inline double tolerance(const Backend& on, DataType type) {
  if (type == DataType::kFloat32) return 1e-5;
  return on.rounds_weights ? 8e-3 : 4e-3;
}

inline void expect_as_naive(const Backend& on, const SparsifyGroupInputs& inputs) {
  const SparsifyGroupResults ours = run(on, inputs);
  const SparsifyGroupExpected theirs = naive(inputs);
  const double bound = tolerance(on, inputs.problem.type);
  expect_close("grouped", ours.grouped, theirs.grouped, bound);
  expect_close("grad_text", ours.grad_text, theirs.grad_text, bound);
  expect_close("grad_image", ours.grad_image, theirs.grad_image, bound);
  // Weights are float32 for every input type, so they must have the accuracy of float32.
  expect_close("weights", ours.weights, theirs.weights, 1e-5);
}

}  // namespace tessera::kernels::test
