#include "kernels/token_contrast/token_contrast.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "tests/kernels/backend.h"
#include "tests/kernels/sparsify_group_case.h"

namespace tessera::kernels::test {
namespace {

constexpr DataType kFloat = DataType::kFloat32, kNarrow = DataType::kBfloat16;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Inputs {
  TokenContrastProblem problem;
  std::vector<float> queries, keys, grad;  // [B, L, D], [B, L, D], [B, L]
  std::vector<std::uint8_t> mask;          // [B, L]; empty means no mask
  float scale = 14.0f;
  int row_padding = 0;  // unused elements after each row of inputs and outputs

  std::size_t tokens() const { return static_cast<std::size_t>(problem.tokens); }
  std::size_t width() const { return static_cast<std::size_t>(problem.width); }
  std::size_t pairs() const { return static_cast<std::size_t>(problem.batch); }
  bool real(std::size_t pair, std::size_t token) const { return mask.empty() || mask[pair * tokens() + token] != 0; }
};

struct Results {
  std::vector<float> losses, grad_queries, grad_keys, grad_scale;
  bool operator==(const Results&) const = default;
};

struct Expected {
  std::vector<double> losses, grad_queries, grad_keys, grad_scale;
};

/// Queries that resemble their keys, as after training, with gradients that make those of the rows about 1.
Inputs random_inputs(std::int64_t batch, std::int64_t tokens, std::int64_t width, DataType type) {
  Inputs out;
  out.problem = {batch, tokens, width, type};
  out.keys = normal_values(batch * tokens * width, 1);
  out.queries = normal_values(batch * tokens * width, 2);
  for (std::size_t i = 0; i < out.keys.size(); ++i) out.queries[i] += 0.5f * out.keys[i];
  out.grad = normal_values(batch * tokens, 3);
  for (float& each : out.grad) each *= 4.0f;
  return out;
}

/// Makes every third row padding, and all rows of the last pair. Padding is NaN.
void mask_rows(Inputs& inputs) {
  inputs.mask.assign(inputs.pairs() * inputs.tokens(), 1);
  for (std::size_t row = 0; row < inputs.mask.size(); ++row) {
    if (row % 3 != 1 && row / inputs.tokens() + 1 < inputs.pairs()) continue;
    inputs.mask[row] = 0;
    inputs.grad[row] = kNan;
    for (std::size_t k = row * inputs.width(); k < (row + 1) * inputs.width(); ++k) inputs.queries[k] = inputs.keys[k] = kNan;
  }
}

/// Runs both kernels. Outputs are NaN until they are written.
Results run(const Backend& on, const Inputs& inputs) {
  const TokenContrastProblem& problem = inputs.problem;
  const std::int64_t rows = problem.batch * problem.tokens, stride = problem.width + inputs.row_padding;
  const auto matrix = [&](const std::vector<float>& values) {
    return on.allocate(to_bytes(spread(values, problem.width, inputs.row_padding), problem.type));
  };
  const auto floats = [&](const std::vector<float>& values) { return on.allocate(to_bytes(values, kFloat)); };
  const auto nothing = [](std::int64_t count) { return std::vector<float>(static_cast<std::size_t>(count), kNan); };
  const auto queries = matrix(inputs.queries), keys = matrix(inputs.keys), grad_queries = matrix(nothing(rows * problem.width)),
             grad_keys = matrix(nothing(rows * problem.width));
  const auto losses = floats(nothing(rows)), grad = floats(inputs.grad), scale = floats({inputs.scale}),
             grad_scale = floats(nothing(problem.batch));
  const auto mask = on.allocate(inputs.mask);
  const auto pointer = [](const std::unique_ptr<Buffer>& buffer) { return static_cast<float*>(buffer->data()); };
  const ConstRows of_queries{queries->data(), problem.tokens * stride, stride}, of_keys{keys->data(), problem.tokens * stride, stride};
  const auto* const bytes = inputs.mask.empty() ? nullptr : static_cast<const std::uint8_t*>(mask->data());
  expect_ok(on.token_contrast_forward({problem, of_queries, of_keys, bytes, pointer(scale), pointer(losses)}));
  expect_ok(on.token_contrast_backward({problem, of_queries, of_keys, bytes, pointer(scale), pointer(grad),
                                        {grad_queries->data(), problem.tokens * stride, stride},
                                        {grad_keys->data(), problem.tokens * stride, stride}, pointer(grad_scale)}));
  const auto read = [&](Buffer& buffer) { return gathered(from_bytes(buffer.read(), problem.type), problem.width, inputs.row_padding); };
  return {from_bytes(losses->read(), kFloat), read(*grad_queries), read(*grad_keys), from_bytes(grad_scale->read(), kFloat)};
}

/// Computes the results by the definition in float64. The gradients of rows pass through each step separately: the losses, the cosines and
/// the normalization.
Expected naive(const Inputs& inputs) {
  const std::size_t L = inputs.tokens(), D = inputs.width();
  const std::vector<float> q = rounded(inputs.queries, inputs.problem.type), k = rounded(inputs.keys, inputs.problem.type);
  Expected out{std::vector<double>(inputs.pairs() * L), std::vector<double>(q.size()), std::vector<double>(q.size()),
               std::vector<double>(inputs.pairs())};
  for (std::size_t pair = 0; pair < inputs.pairs(); ++pair) {
    std::vector<std::size_t> rows;
    for (std::size_t i = 0; i < L; ++i)
      if (inputs.real(pair, i)) rows.push_back(pair * L + i);
    const std::size_t n = rows.size();
    const auto unit = [&](const std::vector<float>& of, std::size_t row, double& length) {
      std::vector<double> values(D);
      double squares = 0;
      for (std::size_t c = 0; c < D; ++c) squares += static_cast<double>(of[row * D + c]) * of[row * D + c];
      length = std::max(std::sqrt(squares), 1e-12);
      for (std::size_t c = 0; c < D; ++c) values[c] = of[row * D + c] / length;
      return values;
    };
    std::vector<std::vector<double>> queries(n), keys(n), cosines(n, std::vector<double>(n)), grads = cosines;
    std::vector<double> query_lengths(n), key_lengths(n);
    for (std::size_t i = 0; i < n; ++i) {
      queries[i] = unit(q, rows[i], query_lengths[i]);
      keys[i] = unit(k, rows[i], key_lengths[i]);
    }
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j)
        for (std::size_t c = 0; c < D; ++c) cosines[i][j] += queries[i][c] * keys[j][c];
    for (std::size_t i = 0; i < n; ++i) {
      const double gradient = inputs.grad[rows[i]];
      for (const bool by_row : {true, false}) {
        const auto at = [&](std::size_t j) -> double { return by_row ? cosines[i][j] : cosines[j][i]; };
        double sum = 0;
        for (std::size_t j = 0; j < n; ++j) sum += std::exp(inputs.scale * (at(j) - cosines[i][i]));
        out.losses[rows[i]] += std::log(sum) / 2;
        for (std::size_t j = 0; j < n; ++j) {
          const double share = gradient / 2 * std::exp(inputs.scale * (at(j) - cosines[i][i])) / sum;
          (by_row ? grads[i][j] : grads[j][i]) += share * inputs.scale;
          grads[i][i] -= share * inputs.scale;
          out.grad_scale[pair] += share * (at(j) - cosines[i][i]);
        }
      }
    }
    const auto through_length = [&](const std::vector<double>& of_unit, const std::vector<double>& of, double length, double* to) {
      double radial = 0;
      for (std::size_t c = 0; c < D; ++c) radial += length > 1e-12 ? of_unit[c] * of[c] : 0;
      for (std::size_t c = 0; c < D; ++c) to[c] = (of_unit[c] - radial * of[c]) / length;
    };
    for (std::size_t i = 0; i < n; ++i) {
      std::vector<double> of_query(D), of_key(D);
      for (std::size_t j = 0; j < n; ++j)
        for (std::size_t c = 0; c < D; ++c) {
          of_query[c] += grads[i][j] * keys[j][c];
          of_key[c] += grads[j][i] * queries[j][c];
        }
      through_length(of_query, queries[i], query_lengths[i], &out.grad_queries[rows[i] * D]);
      through_length(of_key, keys[i], key_lengths[i], &out.grad_keys[rows[i] * D]);
    }
  }
  return out;
}

void expect_as_defined(const Results& ours, const Inputs& inputs) {
  const TokenContrastProblem& problem = inputs.problem;
  SCOPED_TRACE(testing::Message() << "B=" << problem.batch << " L=" << problem.tokens << " D=" << problem.width << " type "
                                  << static_cast<int>(problem.type) << " mask " << !inputs.mask.empty());
  const Expected theirs = naive(inputs);
  // The products of bfloat16 rows are exact, and so are the losses; the gradients are rounded, and the weights in them, too.
  const double of_rows = problem.type == kNarrow ? 8e-3 : 1e-5;
  expect_close("losses", ours.losses, theirs.losses, 5e-6);
  expect_close("grad_queries", ours.grad_queries, theirs.grad_queries, of_rows);
  expect_close("grad_keys", ours.grad_keys, theirs.grad_keys, of_rows);
  expect_close("grad_scale", ours.grad_scale, theirs.grad_scale, 2e-5);
}

class TokenContrast : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(On, TokenContrast, testing::ValuesIn(device_backend_names()), test_name<std::string>);

TEST_P(TokenContrast, EqualsTheDefinitionAtTheSizesOfTheBenchmarks) {
  for (const DataType type : {kNarrow, kFloat}) {
    for (const std::int64_t tokens : {55, 76}) {
      Inputs inputs = random_inputs(2, tokens, 512, type);
      expect_as_defined(run(on, inputs), inputs);
      mask_rows(inputs);
      expect_as_defined(run(on, inputs), inputs);
    }
  }
}

TEST_P(TokenContrast, EqualsTheDefinitionForAnySize) {
  for (const DataType type : {kNarrow, kFloat}) {
    for (const auto& [tokens, width] : {std::pair{1, 8}, {2, 40}, {16, 64}, {17, 33}, {49, 31}, {80, 72}, {97, 3}, {128, 130}}) {
      for (const int padding : {0, 3, 8}) {
        if (padding != 0 && tokens > 20) continue;
        Inputs inputs = random_inputs(3, tokens, width, type);
        inputs.row_padding = padding;
        expect_as_defined(run(on, inputs), inputs);
        mask_rows(inputs);
        expect_as_defined(run(on, inputs), inputs);
      }
    }
  }
}

TEST_P(TokenContrast, EqualsTheDefinitionWithLittleSharedMemory) {
  for (const DataType type : {kNarrow, kFloat}) {
    const Inputs roomy = random_inputs(1, 40, 200, type);
    const Results expected = run(on, roomy);
    for (const std::size_t more : {0, 15000, 30000}) {  // one, two and three buffers
      Inputs inputs = roomy;
      inputs.problem.block_memory = token_contrast_block_memory(40, type) + more;
      EXPECT_EQ(run(on, inputs), expected);
    }
  }
}

TEST_P(TokenContrast, ASingleTokenAndAnEmptyPairHaveNoLoss) {
  Inputs inputs = random_inputs(2, 3, 16, kFloat);
  inputs.mask = {0, 1, 0, 0, 0, 0};
  const Results ours = run(on, inputs);
  EXPECT_EQ(ours.losses, std::vector<float>(6, 0.0f));
  EXPECT_EQ(ours.grad_scale, std::vector<float>(2, 0.0f));
  expect_close("grad_queries", ours.grad_queries, std::vector<double>(96), 1e-6);
  expect_close("grad_keys", ours.grad_keys, std::vector<double>(96), 1e-6);
}

TEST_P(TokenContrast, ARowOfZerosHasCosinesOfZero) {
  Inputs inputs = random_inputs(1, 5, 16, kFloat);
  for (std::size_t k = 0; k < 16; ++k) inputs.queries[32 + k] = inputs.keys[64 + k] = 0.0f;
  for (float& each : inputs.grad) each *= 1e-12f;  // the gradient of a row of zeros is divided by 1e-12
  expect_as_defined(run(on, inputs), inputs);
}

TEST_P(TokenContrast, RowsOfAnyLengthHaveTheSameLoss) {
  Inputs inputs = random_inputs(1, 20, 64, kFloat);
  const Results before = run(on, inputs);
  for (std::size_t row = 0; row < 20; ++row) {
    for (std::size_t k = 0; k < 64; ++k) inputs.queries[row * 64 + k] *= row % 2 == 0 ? 1024.0f : 0x1p-20f;
  }
  EXPECT_EQ(run(on, inputs).losses, before.losses);
}

TEST_P(TokenContrast, ANanInARealRowReachesTheLossesOfItsPairOnly) {
  Inputs inputs = random_inputs(2, 20, 64, kNarrow);
  inputs.queries[7 * 64 + 3] = kNan;
  const Results ours = run(on, inputs);
  for (std::size_t row = 0; row < 40; ++row) EXPECT_EQ(std::isnan(ours.losses[row]), row < 20) << row;
}

TEST_P(TokenContrast, ResultsDoNotDependOnTheOrderOfThreads) {
  Inputs inputs = random_inputs(2, 55, 96, kNarrow);
  mask_rows(inputs);
  const Results first = run(on, inputs);
  EXPECT_EQ(in_reverse_order([&] { return run(on, inputs); }).grad_keys, first.grad_keys);
  EXPECT_EQ(in_reverse_order([&] { return run(on, inputs); }), first);
}

TEST_P(TokenContrast, OneProductInTf32RoundsTheRows) {
  Inputs inputs = random_inputs(1, 24, 64, kFloat);
  const Results exact = run(on, inputs);
  inputs.problem.tf32 = true;
  const Results rounded_rows = run(on, inputs);
  EXPECT_NE(rounded_rows.losses, exact.losses);
  for (std::size_t i = 0; i < exact.losses.size(); ++i) EXPECT_NEAR(rounded_rows.losses[i], exact.losses[i], 2e-2) << i;
}

TEST_P(TokenContrast, MessagesNameTheArgument) {
  const auto message = [&](std::int64_t tokens) {
    TokenContrastForward call;
    call.problem = {1, tokens, 8, kFloat};
    return on.token_contrast_forward(call).message();
  };
  EXPECT_EQ(message(129), "token_contrast: tokens must be at most 128, but is 129");
  EXPECT_EQ(message(5), "token_contrast: queries is a null pointer");
}

}  // namespace
}  // namespace tessera::kernels::test
