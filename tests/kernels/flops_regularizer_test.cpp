#include <cmath>

#include <gtest/gtest.h>

#include "tests/kernels/backend.h"
#include "tests/kernels/sparsify_group_case.h"

namespace tessera::kernels::test {
namespace {

struct FlopsResults {
  std::vector<float> column_sum, column_mean, loss, gradient;
};

/// Runs the forward and backward kernels. The gradient is that of 3 * loss.
FlopsResults run_flops(const Backend& on, const std::vector<float>& encoding, std::int64_t rows, std::int64_t columns,
                       DataType type, int row_padding = 0) {
  const auto floats = [&](std::size_t count, float value) {
    return on.allocate(to_bytes(std::vector<float>(count, value), DataType::kFloat32));
  };
  auto input = on.allocate(to_bytes(spread(encoding, columns, row_padding), type));
  auto gradient = on.allocate(to_bytes(spread(std::vector<float>(encoding.size(), NAN), columns, row_padding), type));
  auto sum = floats(columns, NAN), mean = floats(columns, NAN), loss = floats(1, NAN), grad_loss = floats(1, 3.0f);
  auto workspace = on.allocate(std::vector<unsigned char>(on.flops_workspace(rows, columns), 0xff));
  const auto pointer = [](Buffer& buffer) { return static_cast<float*>(buffer.data()); };
  const std::int64_t stride = columns + row_padding;
  expect_ok(on.flops_column_sums({rows, columns, type, input->data(), stride, pointer(*sum), workspace->data()}));
  expect_ok(on.flops_from_sums({rows, columns, pointer(*sum), pointer(*mean), pointer(*loss), workspace->data()}));
  expect_ok(on.flops_backward({rows, columns, type, pointer(*mean), pointer(*grad_loss), gradient->data(), stride}));
  const auto read = [](Buffer& buffer) { return from_bytes(buffer.read(), DataType::kFloat32); };
  return {read(*sum), read(*mean), read(*loss), gathered(from_bytes(gradient->read(), type), columns, row_padding)};
}

class FlopsRegularizer : public KernelTest {
 protected:
  void expect_as_defined(std::int64_t rows, std::int64_t columns, DataType type, int row_padding) {
    SCOPED_TRACE(testing::Message() << rows << " x " << columns << " + " << row_padding);
    const std::vector<float> encoding = rounded(normal_values(rows * columns, 5), type);
    std::vector<double> mean(columns), gradient(rows * columns);
    double loss = 0.0;
    for (std::int64_t k = 0; k < columns; ++k) {
      for (std::int64_t i = 0; i < rows; ++i) mean[k] += encoding[i * columns + k] / static_cast<double>(rows);
      loss += mean[k] * mean[k];
      for (std::int64_t i = 0; i < rows; ++i)
        gradient[i * columns + k] = 3.0 * 2.0 / static_cast<double>(rows) * mean[k];
    }
    const FlopsResults ours = run_flops(on, encoding, rows, columns, type, row_padding);
    expect_close("column_mean", ours.column_mean, mean, 1e-6);
    expect_close("loss", ours.loss, {loss}, 1e-6);
    expect_close("gradient", ours.gradient, gradient, type == DataType::kFloat32 ? 1e-6 : 4e-3);
  }
};
INSTANTIATE_TEST_SUITE_P(On, FlopsRegularizer, testing::ValuesIn(backend_names()), test_name<std::string>);

TEST_P(FlopsRegularizer, MatchesTheDefinitionAtManyShapes) {
  const std::int64_t shapes[][2] = {{1, 1}, {1, 17}, {7, 30}, {300, 33}, {40, 1030}, {129, 600}, {5, 512}, {64, 2048}};
  for (const auto& [rows, columns] : shapes) {
    for (const DataType type : {DataType::kFloat32, DataType::kBfloat16}) {
      for (const int padding : {0, 1, 8}) expect_as_defined(rows, columns, type, padding);
    }
  }
}

TEST_P(FlopsRegularizer, SumsOfRanksWithUnevenRowsMatchTheGlobalMean) {
  const std::vector<float> all = normal_values(7 * 20, 9);
  const FlopsResults whole = run_flops(on, all, 7, 20, DataType::kFloat32);
  const FlopsResults one = run_flops(on, {all.begin(), all.begin() + 5 * 20}, 5, 20, DataType::kFloat32);
  const FlopsResults two = run_flops(on, {all.begin() + 5 * 20, all.end()}, 2, 20, DataType::kFloat32);
  for (int k = 0; k < 20; ++k) EXPECT_NEAR((one.column_sum[k] + two.column_sum[k]) / 7.0f, whole.column_mean[k], 1e-6);
}

TEST_P(FlopsRegularizer, SumsWithoutRowsAreZero) {
  auto sum = on.allocate(to_bytes(std::vector<float>(600, NAN), DataType::kFloat32));
  auto workspace = on.allocate(std::vector<unsigned char>(on.flops_workspace(0, 600)));
  expect_ok(on.flops_column_sums(
      {0, 600, DataType::kFloat32, sum->data(), 600, static_cast<float*>(sum->data()), workspace->data()}));
  EXPECT_EQ(from_bytes(sum->read(), DataType::kFloat32), std::vector<float>(600, 0.0f));
}

TEST_P(FlopsRegularizer, IsDeterministic) {
  const std::vector<float> encoding = normal_values(500 * 100, 11);
  const FlopsResults once = run_flops(on, encoding, 500, 100, DataType::kFloat32);
  const FlopsResults again = run_flops(on, encoding, 500, 100, DataType::kFloat32);
  EXPECT_EQ(once.column_mean, again.column_mean);
  EXPECT_EQ(once.loss, again.loss);
}

TEST_P(FlopsRegularizer, ErrorsNameBadArguments) {
  float value = 0.0f;
  EXPECT_EQ(on.flops_column_sums({1, 0, DataType::kFloat32, &value, 1, &value, nullptr}).message(),
            "flops_regularizer: columns must be at least 1, but is 0");
  EXPECT_EQ(on.flops_column_sums({1, 1, DataType::kFloat32, nullptr, 1, &value, nullptr}).message(),
            "flops_regularizer: encoding is a null pointer");
  EXPECT_EQ(on.flops_from_sums({0, 1, &value, &value, &value, nullptr}).message(),
            "flops_regularizer: rows must be at least 1, but is 0");
  EXPECT_EQ(on.flops_backward({2, 3, DataType::kFloat32, &value, &value, &value, 2}).message(),
            "flops_regularizer: the row stride of grad_encoding is 2, shorter than a row of 3 elements");
}

TEST(FlopsRegularizerOnCpu, ManyRowsKeepPrecision) {
  const std::int64_t rows = 20000;
  const FlopsResults ours = run_flops(cpu_backend(), std::vector<float>(rows * 3, 0.1f), rows, 3, DataType::kFloat32);
  EXPECT_FLOAT_EQ(ours.column_mean[0], 0.1f);
}

}  // namespace
}  // namespace tessera::kernels::test
