#include <cmath>

#include <gtest/gtest.h>

#include "tests/kernels/backend.h"
#include "tests/kernels/sparsify_group_case.h"

namespace tessera::kernels::test {
namespace {

struct Case {
  Activation activation = Activation::kGelu;
  std::int64_t rows = 0, width = 0;
  DataType type = DataType::kFloat32;
  bool factor = false, sums = true;
};

struct Results {
  std::vector<float> y, grad_x, grad_factor, grad_x_sum, grad_factor_sum;
};

/// The share and its slope, in float64: the value and the derivative of an activation are x * share and share + x * slope.
struct Gate {
  double share, slope;
};
Gate gate_of(Activation activation, double x) {
  if (activation == Activation::kGelu) return {0.5 * std::erfc(-x / std::sqrt(2.0)), std::exp(-x * x / 2) / std::sqrt(2 * M_PI)};
  const double root = std::sqrt(2 / M_PI);
  double inner = x, rate = 1;
  if (activation == Activation::kGeluTanh) inner = 2 * root * (x + 0.044715 * x * x * x), rate = 2 * root * (1 + 3 * 0.044715 * x * x);
  if (activation == Activation::kQuickGelu) inner = 1.702 * x, rate = 1.702;
  const double share = 1 / (1 + std::exp(-inner));
  return {share, share * (1 - share) * rate};
}

class ActivationKernels : public KernelTest {
 protected:
  static std::vector<float> inputs(const Case& c, unsigned seed) {
    std::vector<float> values = normal_values(c.rows * c.width, seed);
    for (float& value : values) value *= 3.0f;  // so that some are in the tails
    return rounded(values, c.type);
  }

  Results run(const Case& c) const {
    const auto filled = [&](std::int64_t count, DataType type) {
      return on.allocate(to_bytes(std::vector<float>(static_cast<std::size_t>(count), NAN), type));
    };
    const auto given = [&](unsigned seed) { return on.allocate(to_bytes(inputs(c, seed), c.type)); };
    const std::int64_t count = c.rows * c.width;
    const auto x = given(1), factor = given(2), grad_y = given(3), y = filled(count, c.type), grad_x = filled(count, c.type),
               grad_factor = filled(count, c.type), x_sum = filled(c.width, DataType::kFloat32),
               factor_sum = filled(c.width, DataType::kFloat32);
    const ActivationProblem problem{c.activation, c.rows, c.width, c.type};
    ActivationForward forward{problem, x->data(), c.factor ? factor->data() : nullptr, y->data()};
    expect_ok(on.activation_forward(forward));
    ActivationBackward backward{problem, x->data(), c.factor ? factor->data() : nullptr, grad_y->data(), grad_x->data()};
    if (c.factor) backward.grad_factor = grad_factor->data();
    const auto workspace = on.allocate(std::vector<unsigned char>(on.activation_workspace(problem), 0xff));
    if (c.sums) {
      backward.grad_x_sum = static_cast<float*>(x_sum->data());
      if (c.factor) backward.grad_factor_sum = static_cast<float*>(factor_sum->data());
      backward.workspace = workspace->data();
    }
    expect_ok(on.activation_backward(backward));
    const auto read = [](const auto& buffer, DataType type = DataType::kFloat32) { return from_bytes(buffer->read(), type); };
    return {read(y, c.type), read(grad_x, c.type), read(grad_factor, c.type), read(x_sum), read(factor_sum)};
  }

  /// Compares with the definition in float64.
  void expect_as_defined(const Case& c) const {
    SCOPED_TRACE(testing::Message() << "activation " << static_cast<int>(c.activation) << ", " << c.rows << " x " << c.width << ", type "
                                    << static_cast<int>(c.type) << ", factor " << c.factor);
    const std::vector<float> x = inputs(c, 1), factor = inputs(c, 2), grad_y = inputs(c, 3);
    const Results ours = run(c);
    const auto width = static_cast<std::size_t>(c.width);
    std::vector<double> y(x.size()), grad_x(x.size()), grad_factor(x.size()), x_sum(width), factor_sum(width);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const Gate gate = gate_of(c.activation, x[i]);
      const double multiplier = c.factor ? factor[i] : 1.0;
      y[i] = x[i] * gate.share * multiplier;
      grad_x[i] = grad_y[i] * multiplier * (gate.share + x[i] * gate.slope);
      grad_factor[i] = grad_y[i] * x[i] * gate.share;
      x_sum[i % x_sum.size()] += grad_x[i];
      factor_sum[i % x_sum.size()] += grad_factor[i];
    }
    const bool narrow = c.type == DataType::kBfloat16;
    expect_relative("y", ours.y, y, narrow ? 4.2e-3 : 2e-5);
    expect_close("grad_x", ours.grad_x, grad_x, narrow ? 4e-3 : 2e-6);
    if (c.factor) expect_relative("grad_factor", ours.grad_factor, grad_factor, narrow ? 4.2e-3 : 2e-5);
    if (!c.sums) return;
    expect_close("grad_x_sum", ours.grad_x_sum, x_sum, narrow ? 2e-5 : 5e-6);
    if (c.factor) expect_close("grad_factor_sum", ours.grad_factor_sum, factor_sum, narrow ? 2e-5 : 5e-6);
  }

  /// Expects that each value is right up to a share of itself, except those below 1e-30: the tails of an activation are small, but not 0.
  static void expect_relative(const char* what, const std::vector<float>& ours, const std::vector<double>& theirs, double share) {
    double worst = 0.0;
    for (std::size_t i = 0; i < ours.size(); ++i) {
      const double error = std::abs(ours[i] - theirs[i]) / std::max(1e-30, std::abs(theirs[i]));
      worst = std::isnan(error) ? INFINITY : std::max(worst, error);
    }
    EXPECT_LE(worst, share) << what;
  }
};
INSTANTIATE_TEST_SUITE_P(On, ActivationKernels, testing::ValuesIn(device_backend_names()), test_name<std::string>);

constexpr Activation kAll[] = {Activation::kGelu, Activation::kGeluTanh, Activation::kQuickGelu, Activation::kSilu};
constexpr DataType kBoth[] = {DataType::kFloat32, DataType::kBfloat16};

TEST_P(ActivationKernels, MatchTheDefinitionAtTheWidthsOfModels) {
  for (const Activation activation : kAll)
    for (const DataType type : kBoth)
      for (const std::int64_t width : {2048, 3072, 4304}) expect_as_defined({activation, 37, width, type});
  for (const DataType type : kBoth) expect_as_defined({Activation::kSilu, 37, 2736, type, true});
}

TEST_P(ActivationKernels, MatchTheDefinitionAtOddWidths) {
  for (const std::int64_t width : {1, 7, 33, 250, 1001})
    for (const DataType type : kBoth)
      for (const bool factor : {false, true}) expect_as_defined({kAll[width % 4], 70, width, type, factor});
}

TEST_P(ActivationKernels, ComputeNoSumsUnlessAsked) {
  const Case c{Activation::kGelu, 5, 64, DataType::kBfloat16, true, false};
  expect_as_defined(c);
  EXPECT_TRUE(std::isnan(run(c).grad_x_sum[0]));
}

TEST_P(ActivationKernels, AddManyRowsInOrder) {
  const Case many{Activation::kGelu, 1500, 264, DataType::kBfloat16, true};
  expect_as_defined(many);
  const Results once = run(many), again = in_reverse_order([&] { return run(many); });
  EXPECT_EQ(once.grad_x_sum, again.grad_x_sum);
  EXPECT_EQ(once.grad_factor_sum, again.grad_factor_sum);
  EXPECT_EQ(once.grad_x, again.grad_x);
  EXPECT_EQ(once.y, again.y);
}

TEST_P(ActivationKernels, RunWithoutRows) {
  ActivationForward forward;
  forward.problem.width = 8;
  expect_ok(on.activation_forward(forward));
  ActivationBackward backward;
  backward.problem.width = 8;
  expect_ok(on.activation_backward(backward));
}

TEST_P(ActivationKernels, ErrorsNameBadArguments) {
  float value = 0.0f;
  ActivationForward forward;
  forward.problem = {Activation::kGelu, 1, 0};
  EXPECT_EQ(on.activation_forward(forward).message(), "activation: width must be at least 1, but is 0");
  forward.problem.width = 1;
  EXPECT_EQ(on.activation_forward(forward).message(), "activation: x is a null pointer");
  ActivationBackward backward{{Activation::kGelu, 1, 1}, &value, nullptr, &value, &value};
  backward.grad_x_sum = &value;
  EXPECT_EQ(on.activation_backward(backward).message(), "activation: workspace is a null pointer");
  backward.grad_factor_sum = &value;
  EXPECT_EQ(on.activation_backward(backward).message(), "activation: grad_factor_sum needs a factor");
}

TEST(Activations, AreFoundByName) {
  Activation found = Activation::kGelu;
  EXPECT_TRUE(find_activation("quick_gelu", found));
  EXPECT_EQ(found, Activation::kQuickGelu);
  EXPECT_FALSE(find_activation("relu", found));
}

}  // namespace
}  // namespace tessera::kernels::test
