#include <cmath>

#include <gtest/gtest.h>

#include "tests/kernels/backend.h"
#include "tests/kernels/sparsify_group_case.h"

namespace tessera::kernels::test {
namespace {

constexpr DataType kFloat = DataType::kFloat32, kNarrow = DataType::kBfloat16;
constexpr float kEpsilon = 1e-5f;

/// What a call has. The types are those of the stream, the update and the output.
struct Case {
  std::int64_t rows = 0, width = 0;
  DataType stream = kFloat, update_type = kFloat, output = kFloat;
  bool update = true, norm = true, factor = false, scale = false, grad_sum = true;
  std::int64_t rows_per_factor = 1;
};

struct Results {
  std::vector<float> sum, output, mean, rstd, grad_x, grad_update, grad_weight, grad_bias, grad_update_bias, grad_column_scale;
};

class ResidualNorm : public KernelTest {
 protected:
  static std::vector<float> inputs(const Case& c, unsigned seed, DataType type) {
    return rounded(normal_values(c.rows * c.width, seed), type);
  }
  static std::vector<float> columns(const Case& c, unsigned seed) { return normal_values(c.width, seed); }
  static std::vector<float> factors(const Case& c) {
    std::vector<float> out;
    for (std::int64_t i = 0; i * c.rows_per_factor < c.rows; ++i) out.push_back(i % 3 == 1 ? 0.0f : 1.25f);
    return out;
  }

  /// Runs the forward and the backward kernel.
  Results run(const Case& c) const {
    const auto filled = [&](std::size_t count, DataType type) { return on.allocate(to_bytes(std::vector<float>(count, NAN), type)); };
    const auto given = [&](const std::vector<float>& values, DataType type) { return on.allocate(to_bytes(values, type)); };
    const auto floats = [](const std::unique_ptr<Buffer>& buffer) { return static_cast<float*>(buffer->data()); };
    const std::size_t matrix = static_cast<std::size_t>(c.rows * c.width), rows = static_cast<std::size_t>(c.rows),
                      width = static_cast<std::size_t>(c.width);
    const auto x = given(inputs(c, 1, c.stream), c.stream), update = given(inputs(c, 2, c.update_type), c.update_type),
               weight = given(columns(c, 3), kFloat), bias = given(columns(c, 4), kFloat), scale = given(columns(c, 5), kFloat),
               factor = given(factors(c), kFloat), grad_sum = given(inputs(c, 6, c.stream), c.stream),
               grad_output = given(inputs(c, 7, c.output), c.output);
    const auto sum = filled(matrix, c.stream), output = filled(matrix, c.output), mean = filled(rows, kFloat), rstd = filled(rows, kFloat),
               grad_x = filled(matrix, c.stream), grad_update = filled(matrix, c.update_type), grad_weight = filled(width, kFloat),
               grad_bias = filled(width, kFloat), grad_update_bias = filled(width, kFloat), grad_scale = filled(width, kFloat);
    ResidualNormProblem problem{c.rows, c.width, c.stream, c.update_type, c.output};
    problem.rows_per_factor = c.rows_per_factor;
    if (c.factor) problem.row_factor = floats(factor);
    if (c.scale) problem.column_scale = floats(scale);
    if (c.norm) problem.weight = floats(weight);
    ResidualNormForward forward{problem};
    forward.x = x->data();
    if (c.update) forward.update = update->data();
    forward.bias = floats(bias);
    forward.epsilon = kEpsilon;
    forward.sum = sum->data();
    forward.output = output->data();
    forward.mean = floats(mean);
    forward.rstd = floats(rstd);
    expect_ok(on.residual_norm_forward(forward));
    ResidualNormBackward backward{problem};
    backward.sum = c.update ? sum->data() : x->data();
    backward.mean = floats(mean);
    backward.rstd = floats(rstd);
    backward.update = update->data();
    if (c.grad_sum) backward.grad_sum = grad_sum->data();
    backward.grad_output = grad_output->data();
    backward.grad_x = grad_x->data();
    if (c.norm) backward.grad_weight = floats(grad_weight), backward.grad_bias = floats(grad_bias);
    if (c.update) backward.grad_update = grad_update->data(), backward.grad_update_bias = floats(grad_update_bias);
    if (c.update && c.scale) backward.grad_column_scale = floats(grad_scale);
    const auto workspace = on.allocate(std::vector<unsigned char>(on.residual_norm_workspace(c.rows, c.width), 0xff));
    backward.workspace = workspace->data();
    expect_ok(on.residual_norm_backward(backward));
    const auto read = [](const std::unique_ptr<Buffer>& buffer, DataType type = kFloat) { return from_bytes(buffer->read(), type); };
    return {read(sum, c.stream), read(output, c.output), read(mean), read(rstd), read(grad_x, c.stream), read(grad_update, c.update_type),
            read(grad_weight), read(grad_bias), read(grad_update_bias), read(grad_scale)};
  }

  /// Compares with the definition in float64. The sum that is normalized is the kernel's own, so that its rounding does not matter.
  void expect_as_defined(const Case& c) const {
    SCOPED_TRACE(testing::Message() << c.rows << " x " << c.width << ", types " << static_cast<int>(c.stream) << static_cast<int>(c.update_type)
                                    << static_cast<int>(c.output) << ", update " << c.update << ", norm " << c.norm << ", factor " << c.factor
                                    << ", scale " << c.scale << ", grad_sum " << c.grad_sum);
    const std::vector<float> x = inputs(c, 1, c.stream), update = inputs(c, 2, c.update_type), weight = columns(c, 3), bias = columns(c, 4),
                             scale = columns(c, 5), factor = factors(c), grad_sum = inputs(c, 6, c.stream),
                             grad_output = inputs(c, 7, c.output);
    const Results ours = run(c);
    const auto matrix = static_cast<std::size_t>(c.rows * c.width), width = static_cast<std::size_t>(c.width);
    std::vector<double> sum(matrix), output(matrix), mean(static_cast<std::size_t>(c.rows)), rstd(mean.size()), grad_x(matrix),
        grad_update(matrix), grad_weight(width), grad_bias(width), grad_update_bias(width), grad_scale(width);
    for (std::size_t row = 0; row < mean.size(); ++row) {
      const std::size_t first = row * width;
      const double of_row = c.factor ? factor[row / static_cast<std::size_t>(c.rows_per_factor)] : 1.0;
      const auto scale_of = [&](std::size_t k) { return of_row * (c.scale ? scale[k] : 1.0); };
      std::vector<double> values(width);
      double squares = 0.0, weighted = 0.0, products = 0.0;
      for (std::size_t k = 0; k < width; ++k) {
        sum[first + k] = x[first + k] + (c.update ? scale_of(k) * update[first + k] : 0.0);
        values[k] = c.update ? ours.sum[first + k] : x[first + k];
        mean[row] += values[k] / static_cast<double>(width);
      }
      for (const double value : values) squares += (value - mean[row]) * (value - mean[row]) / static_cast<double>(width);
      rstd[row] = 1.0 / std::sqrt(squares + kEpsilon);
      for (std::size_t k = 0; k < width; ++k) {
        const double unit = (values[k] - mean[row]) * rstd[row], gradient = grad_output[first + k];
        output[first + k] = unit * weight[k] + bias[k];
        weighted += gradient * weight[k] / static_cast<double>(width);
        products += gradient * weight[k] * unit / static_cast<double>(width);
        grad_weight[k] += gradient * unit;
        grad_bias[k] += gradient;
      }
      for (std::size_t k = 0; k < width; ++k) {
        const double unit = (values[k] - mean[row]) * rstd[row];
        double& gradient = grad_x[first + k];
        if (c.grad_sum) gradient = grad_sum[first + k];
        if (c.norm) gradient += rstd[row] * (grad_output[first + k] * weight[k] - weighted - unit * products);
        grad_update[first + k] = scale_of(k) * gradient;
        grad_update_bias[k] += grad_update[first + k];
        grad_scale[k] += of_row * gradient * update[first + k];
      }
    }
    const auto tolerance_of = [](DataType type) { return type == kFloat ? 2e-6 : 4e-3; };
    if (c.update) expect_close("sum", ours.sum, sum, tolerance_of(c.stream));
    expect_close("grad_x", ours.grad_x, grad_x, tolerance_of(c.stream));
    if (c.update) {
      expect_close("grad_update", ours.grad_update, grad_update, tolerance_of(c.update_type));
      expect_close("grad_update_bias", ours.grad_update_bias, grad_update_bias, 5e-6);
      if (c.scale) expect_close("grad_column_scale", ours.grad_column_scale, grad_scale, 5e-6);
    }
    if (!c.norm) return;
    expect_close("output", ours.output, output, tolerance_of(c.output));
    expect_close("mean", ours.mean, mean, 1e-6);
    expect_close("rstd", ours.rstd, rstd, 1e-6);
    expect_close("grad_weight", ours.grad_weight, grad_weight, 5e-6);
    expect_close("grad_bias", ours.grad_bias, grad_bias, 5e-6);
  }
};
INSTANTIATE_TEST_SUITE_P(On, ResidualNorm, testing::ValuesIn(device_backend_names()), test_name<std::string>);

constexpr DataType kTypes[][3] = {{kFloat, kFloat, kFloat}, {kFloat, kNarrow, kNarrow}, {kFloat, kNarrow, kFloat},
                                  {kNarrow, kNarrow, kNarrow}, {kNarrow, kNarrow, kFloat}};

TEST_P(ResidualNorm, MatchesTheDefinitionAtTheWidthsOfModels) {
  for (const std::int64_t width : {512, 768, 1024, 1152, 4608})
    for (const auto& types : kTypes) expect_as_defined({width > 1024 ? 5 : 9, width, types[0], types[1], types[2]});
}

TEST_P(ResidualNorm, MatchesTheDefinitionAtOddWidths) {
  for (const std::int64_t width : {3, 7, 33, 250, 1001, 1031})  // with one column, the variance is 0 and the gradient only rounding
    for (const auto& types : kTypes) expect_as_defined({6, width, types[0], types[1], types[2], true, true, true, true});
}

TEST_P(ResidualNorm, HasAllVariants) {
  for (const bool norm : {true, false})
    for (const bool update : {true, false})
      for (const bool factor : {true, false})
        for (const bool scale : {true, false})
          for (const bool grad_sum : {true, false}) {
            if ((!norm && !(update && grad_sum)) || (!update && (factor || scale))) continue;
            for (const auto& types : {kTypes[0], kTypes[1], kTypes[3]})
              expect_as_defined({10, 72, types[0], types[1], types[2], update, norm, factor, scale, grad_sum, 4});
          }
}

TEST_P(ResidualNorm, AddsManyRowsInOrder) {
  const Case many{1200, 24, kFloat, kNarrow, kNarrow, true, true, true, true};
  expect_as_defined(many);
  const Results once = run(many), again = in_reverse_order([&] { return run(many); });
  EXPECT_EQ(once.grad_weight, again.grad_weight);
  EXPECT_EQ(once.grad_update_bias, again.grad_update_bias);
  EXPECT_EQ(once.grad_x, again.grad_x);
  EXPECT_EQ(once.output, again.output);
}

TEST_P(ResidualNorm, RunsWithoutRows) {
  ResidualNormForward forward{{0, 8}};
  expect_ok(on.residual_norm_forward(forward));
  ResidualNormBackward backward{{0, 8}};
  expect_ok(on.residual_norm_backward(backward));
}

TEST_P(ResidualNorm, ErrorsNameBadArguments) {
  float value = 0.0f;
  const auto forward = [&](ResidualNormProblem problem) {
    ResidualNormForward call{problem};
    call.x = &value;
    return on.residual_norm_forward(call).message();
  };
  EXPECT_EQ(forward({1, 0}), "residual_norm: width must be at least 1, but is 0");
  EXPECT_EQ(forward({1, 9000}), "residual_norm: width must be at most 8192, but is 9000");
  EXPECT_EQ(forward({1, 8, kNarrow}), "residual_norm: update must be bfloat16 if the stream or the output is");
  EXPECT_EQ(forward({1, 8, kFloat, kFloat, kFloat, nullptr, 1, nullptr, &value}), "residual_norm: bias is a null pointer");
  ResidualNormBackward backward{{1, 8}};
  EXPECT_EQ(on.residual_norm_backward(backward).message(), "residual_norm: workspace is a null pointer");
}

}  // namespace
}  // namespace tessera::kernels::test
