#include <map>

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "src/ops/activation.h"
#include "src/ops/linear_map.h"

namespace tessera {
namespace {
namespace linear_map_test {

constexpr std::int64_t kBatch = 3, kTokens = 5, kIn = 16, kOut = 24;
const std::vector<std::string> kActivations = {"gelu", "gelu_tanh", "quick_gelu", "silu", "relu"};

// A map from x to y, an activation with or without a factor, and a second map back to the width of x.
struct MapCase {
  at::Tensor x, weight, bias, factor, second, grad;

  explicit MapCase(at::ScalarType type, at::DeviceType device = at::kCPU, unsigned seed = 1) {
    at::manual_seed(seed);
    const auto leaf = [&](at::IntArrayRef sizes) {
      // Rounded to bfloat16, so that all types have the same values.
      return at::randn(sizes).to(at::kBFloat16).to(device, type).requires_grad_();
    };
    x = leaf({kBatch, kTokens, kIn}), weight = leaf({kOut, kIn}), bias = leaf({kOut}), factor = leaf({kBatch, kTokens, kOut});
    second = leaf({kIn, kOut}), grad = leaf({kBatch, kTokens, kIn}).detach();
  }
};

// What the functions compute, by name.
using Results = std::map<std::string, at::Tensor>;

Results by_functions(const MapCase& c, const std::string& activation, bool gated, at::ScalarType type_of_weights) {
  const at::NoGradGuard no_grad;
  Results out;
  const MapParameters parameters = {c.weight, c.bias, {}};
  ActivationGradient of;
  at::Tensor hidden;
  if (gated) {
    const at::Tensor before = apply_map(c.x, parameters, false);
    hidden = activate_and_multiply(before, c.factor, activation);
    of = activation_gradient(input_gradient(c.grad, c.second), before, c.factor, activation, true);
    out["factor"] = of.factor;
    out["factor_bias"] = of.factor_bias;
  } else {
    const ActivatedMap found = map_and_activate(c.x, parameters, false, activation);
    hidden = found.after;
    of = activated_input_gradient(c.grad, c.second, found.before, activation, true);
  }
  const MapGradient first = parameter_gradient(of.x, c.x, type_of_weights, true, !of.x_bias.defined());
  out["y"] = apply_map(hidden, {c.second, {}, {}}, false);
  out["second"] = parameter_gradient(c.grad, hidden, type_of_weights, true, false).weight;
  out["weight"] = first.weight;
  out["bias"] = of.x_bias.defined() ? of.x_bias : first.bias;
  out["x"] = input_gradient(of.x, c.weight);
  out["twice"] = input_gradient(of.x, c.weight, out["x"].clone());
  return out;
}

Results by_autograd(const MapCase& c, const std::string& activation, bool gated) {
  const at::Tensor activated = activate(at::linear(c.x, c.weight, c.bias), activation), hidden = gated ? activated * c.factor : activated;
  Results out;
  out["y"] = at::linear(hidden, c.second);
  std::vector<at::Tensor> inputs = {c.x, c.weight, c.bias, c.second};
  if (gated) inputs.push_back(c.factor);
  const auto found = torch::autograd::grad({out["y"]}, inputs, {c.grad});
  out["x"] = found[0], out["weight"] = found[1], out["bias"] = found[2], out["second"] = found[3], out["twice"] = 2 * found[0];
  if (gated) out["factor"] = found[4], out["factor_bias"] = found[4].sum(at::IntArrayRef{0, 1});
  return out;
}

void expect_same(const Results& ours, const Results& theirs, double tolerance) {
  ASSERT_EQ(ours.size(), theirs.size());
  for (const auto& [name, value] : theirs) {
    SCOPED_TRACE(name);
    const at::Tensor mine = ours.at(name).cpu().to(at::kDouble), right = value.detach().cpu().to(at::kDouble);
    EXPECT_LE((mine - right).abs().max().item<double>(), tolerance * (1 + right.abs().max().item<double>()));
  }
}

TEST(LinearMap, EqualsAutograd) {
  for (const bool gated : {false, true})
    for (const std::string& activation : kActivations) {
      SCOPED_TRACE(activation);
      const MapCase wide(at::kDouble), single(at::kFloat);
      expect_same(by_functions(wide, activation, gated, at::kDouble), by_autograd(wide, activation, gated), 1e-12);
      expect_same(by_functions(single, activation, gated, at::kFloat), by_autograd(single, activation, gated), 0);
    }
}

TEST(LinearMap, MultipliesByTheCopyOfTheWeight) {
  const MapCase c(at::kFloat);
  const at::NoGradGuard no_grad;
  const MapParameters parameters = {c.weight, c.bias, c.weight.to(at::kBFloat16)};
  const at::Tensor x = c.x.to(at::kBFloat16), y = apply_map(x, parameters, true);
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(at::equal(apply_map(x, parameters, false), at::linear(x, parameters.copy, c.bias.to(at::kBFloat16))));
}

TEST(LinearMap, UsesTheAlgorithmThatTheTuningTableNames) {
  const kernels::GemmProblem problem{kernels::GemmKind::kForward, 40, kIn, kOut};
  const std::vector<std::string> algorithms = {"first", "second"};
  const ForcedConfiguration forced(linear_map_tuning_key(problem), "second");
  EXPECT_EQ(choose_algorithm(problem, algorithms), "second");
  EXPECT_EQ(choose_algorithm(problem, {"first"}), "first") << "the chosen algorithm cannot compute this product";
  EXPECT_EQ(choose_algorithm(problem, {}), "");
  kernels::GemmProblem other = problem;
  other.rows = 64;
  EXPECT_EQ(choose_algorithm(other, algorithms), "second") << "the same class of rows";
  const auto expect_another_key = [&](const auto& change) {
    kernels::GemmProblem changed = problem;
    change(changed);
    EXPECT_NE(linear_map_tuning_key(changed), linear_map_tuning_key(problem));
  };
  expect_another_key([](auto& p) { p.kind = kernels::GemmKind::kInputGradient; });
  expect_another_key([](auto& p) { p.rows = 65; });
  expect_another_key([](auto& p) { p.in = kOut; });
  expect_another_key([](auto& p) { p.out = kIn; });
  expect_another_key([](auto& p) { p.result = kernels::DataType::kFloat32; });
  expect_another_key([](auto& p) { p.bias = true; });
  expect_another_key([](auto& p) { p.activated = true; });
  expect_another_key([](auto& p) { p.accumulate = true; });
}

TEST(LinearMap, OnAGpuMatchesFloat64) {
  if (!at::globalContext().hasCUDA()) GTEST_SKIP() << "no GPU";
  for (const bool gated : {false, true})
    for (const std::string& activation : kActivations) {
      SCOPED_TRACE(activation);
      const Results exact = by_autograd(MapCase(at::kDouble), activation, gated);
      expect_same(by_functions(MapCase(at::kFloat, at::kCUDA), activation, gated, at::kFloat), exact, 1e-5);
      const Results narrow = by_functions(MapCase(at::kBFloat16, at::kCUDA), activation, gated, at::kFloat);
      expect_same(narrow, exact, 2e-2);
      EXPECT_EQ(narrow.at("weight").scalar_type(), at::kFloat);
      EXPECT_EQ(narrow.at("bias").scalar_type(), at::kFloat);
    }
}

}  // namespace linear_map_test
}  // namespace
}  // namespace tessera
