#include <cmath>

#include <gtest/gtest.h>

#include "tests/kernels/backend.h"
#include "tests/kernels/sparsify_group_case.h"

namespace tessera::kernels::test {
namespace {

struct FlopsResults {
  std::vector<float> column_sum, column_mean, loss, row_gradient, gradient;
};

/// Runs the forward and backward kernels. The gradients are those of 3 * loss: one row, and all rows. The encoding begins `offset` elements
/// behind an aligned address, and its rows are `row_padding` elements apart.
FlopsResults run_flops(const Backend& on, const std::vector<float>& encoding, std::int64_t rows, std::int64_t columns,
                       DataType type, int row_padding = 0, int offset = 0) {
  const auto floats = [&](std::size_t count, float value) {
    return on.allocate(to_bytes(std::vector<float>(count, value), DataType::kFloat32));
  };
  const auto at_offset = [&](std::vector<float> values) {
    values.insert(values.begin(), offset, NAN);
    return on.allocate(to_bytes(values, type));
  };
  const auto nans = [](std::int64_t count) { return std::vector<float>(static_cast<std::size_t>(count), NAN); };
  auto input = at_offset(spread(encoding, columns, row_padding));
  auto gradient = at_offset(spread(nans(rows * columns), columns, row_padding)), row_gradient = at_offset(nans(columns));
  auto sum = floats(columns, NAN), mean = floats(columns, NAN), loss = floats(1, NAN), grad_loss = floats(1, 3.0f);
  const auto pointer = [](Buffer& buffer) { return static_cast<float*>(buffer.data()); };
  const auto behind_offset = [&](Buffer& buffer) { return static_cast<unsigned char*>(buffer.data()) + offset * size_of(type); };
  FlopsForward forward{rows, columns, type, behind_offset(*input), columns + row_padding, pointer(*sum), pointer(*mean), pointer(*loss)};
  auto workspace = on.allocate(std::vector<unsigned char>(on.flops_workspace(forward), 0xff));
  forward.workspace = workspace->data();
  expect_ok(on.flops_forward(forward));
  FlopsBackward backward{rows, columns, type, pointer(*mean), pointer(*grad_loss), behind_offset(*gradient), rows, columns + row_padding};
  expect_ok(on.flops_backward(backward));
  backward.grad_encoding = behind_offset(*row_gradient);
  backward.written_rows = 1;
  expect_ok(on.flops_backward(backward));
  const auto read = [](Buffer& buffer) { return from_bytes(buffer.read(), DataType::kFloat32); };
  const auto from_offset = [&](Buffer& buffer) {
    std::vector<float> values = from_bytes(buffer.read(), type);
    for (int i = 0; i < offset; ++i) EXPECT_TRUE(std::isnan(values[i])) << "the elements before the array are not touched";
    return std::vector<float>(values.begin() + offset, values.end());
  };
  return {read(*sum), read(*mean), read(*loss), from_offset(*row_gradient), gathered(from_offset(*gradient), columns, row_padding)};
}

class FlopsRegularizer : public KernelTest {
 protected:
  void expect_as_defined(std::int64_t rows, std::int64_t columns, DataType type, int row_padding = 0, int offset = 0) {
    SCOPED_TRACE(testing::Message() << rows << " x " << columns << " + " << row_padding << " from " << offset);
    const std::vector<float> encoding = rounded(normal_values(rows * columns, 5), type);
    std::vector<double> mean(columns), gradient(rows * columns);
    double loss = 0.0;
    for (std::int64_t k = 0; k < columns; ++k) {
      for (std::int64_t i = 0; i < rows; ++i) mean[k] += encoding[i * columns + k] / static_cast<double>(rows);
      loss += mean[k] * mean[k];
      for (std::int64_t i = 0; i < rows; ++i)
        gradient[i * columns + k] = 3.0 * 2.0 / static_cast<double>(rows) * mean[k];
    }
    const FlopsResults ours = run_flops(on, encoding, rows, columns, type, row_padding, offset);
    std::vector<double> sum(columns);
    for (std::int64_t k = 0; k < columns; ++k) sum[k] = mean[k] * static_cast<double>(rows);
    expect_close("column_sum", ours.column_sum, sum, 1e-6);
    expect_close("column_mean", ours.column_mean, mean, 1e-6);
    expect_close("loss", ours.loss, {loss}, 1e-6);
    expect_close("gradient", ours.gradient, gradient, type == DataType::kFloat32 ? 1e-6 : 4e-3);
    EXPECT_EQ(ours.row_gradient, std::vector<float>(ours.gradient.begin(), ours.gradient.begin() + columns));
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

// The width of STAIR's vocabulary has rows that begin at four (bfloat16) or two (float32) addresses modulo 16 bytes; the next width has
// eight or four.
TEST_P(FlopsRegularizer, MatchesTheDefinitionForVocabularies) {
  for (const std::int64_t columns : {30522, 30523}) {
    for (const DataType type : {DataType::kFloat32, DataType::kBfloat16}) expect_as_defined(13, columns, type);
  }
}

TEST_P(FlopsRegularizer, MatchesTheDefinitionAtAnyAddress) {
  for (const DataType type : {DataType::kFloat32, DataType::kBfloat16}) {
    for (const int offset : {1, 2, 3, 7}) {
      expect_as_defined(19, 45, type, 0, offset);
      expect_as_defined(70, 2056, type, 0, offset);
      expect_as_defined(3, 1, type, 5, offset);
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
  FlopsForward forward{0, 600, DataType::kFloat32, sum->data(), 600, static_cast<float*>(sum->data())};
  auto workspace = on.allocate(std::vector<unsigned char>(on.flops_workspace(forward)));
  forward.workspace = workspace->data();
  expect_ok(on.flops_forward(forward));
  EXPECT_EQ(from_bytes(sum->read(), DataType::kFloat32), std::vector<float>(600, 0.0f));
}

// The address decides which columns a GPU's threads process, but not the order of additions.
TEST_P(FlopsRegularizer, IsDeterministic) {
  const std::vector<float> encoding = normal_values(500 * 2101, 11);
  const auto run = [&](int offset) { return run_flops(on, encoding, 500, 2101, DataType::kFloat32, 0, offset); };
  const FlopsResults once = run(0);
  for (const FlopsResults& again : {run(0), run(1), in_reverse_order([&] { return run(0); })}) {
    EXPECT_EQ(once.column_mean, again.column_mean);
    EXPECT_EQ(once.loss, again.loss);
    EXPECT_EQ(once.gradient, again.gradient);
  }
}

TEST_P(FlopsRegularizer, ErrorsNameBadArguments) {
  float value = 0.0f;
  const auto forward = [&](std::int64_t rows, std::int64_t columns, const void* encoding, float* sum, float* mean, float* loss) {
    return on.flops_forward({rows, columns, DataType::kFloat32, encoding, columns, sum, mean, loss}).message();
  };
  EXPECT_EQ(forward(1, 0, &value, &value, nullptr, nullptr), "flops_regularizer: columns must be at least 1, but is 0");
  EXPECT_EQ(forward(1, 1, nullptr, &value, nullptr, nullptr), "flops_regularizer: encoding is a null pointer");
  EXPECT_EQ(forward(1, 1, &value, nullptr, nullptr, nullptr), "flops_regularizer: column_sum is a null pointer");
  EXPECT_EQ(forward(1, 1, &value, &value, &value, nullptr), "flops_regularizer: loss is a null pointer");
  EXPECT_EQ(forward(0, 1, &value, nullptr, &value, &value), "flops_regularizer: rows must be at least 1, but is 0");
  EXPECT_EQ(on.flops_backward({2, 3, DataType::kFloat32, &value, &value, &value, 2, 2}).message(),
            "flops_regularizer: the row stride of grad_encoding is 2, shorter than a row of 3 elements");
}

TEST(FlopsRegularizerOnCpu, ManyRowsKeepPrecision) {
  const std::int64_t rows = 20000;
  const FlopsResults ours = run_flops(cpu_backend(), std::vector<float>(rows * 3, 0.1f), rows, 3, DataType::kFloat32);
  EXPECT_FLOAT_EQ(ours.column_mean[0], 0.1f);
}

}  // namespace
}  // namespace tessera::kernels::test
