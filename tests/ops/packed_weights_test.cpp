#include "src/ops/packed_weights.h"

#include <thread>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kernels/cpu/instruction_set.h"
#include "kernels/packed_map/packed_map.h"
#include "src/ops/activation.h"

namespace tessera {
namespace {

class PackedWeightsTest : public testing::TestWithParam<at::ScalarType> {
 protected:
  PackedWeightsTest() {
    at::manual_seed(1);
    x = at::randn({3, 5, 24});
    weight = (at::randn({40, 24}) / 5).requires_grad_();
    bias = at::randn({40});
  }
  void TearDown() override { kernels::use_instruction_set(""); }

  at::Tensor map(const std::string& activation = "") const {
    const at::NoGradGuard no_grad;
    return PackedWeights::map(x, weight, bias, activation);
  }
  at::Tensor expected(const std::string& activation = "") const {
    const at::NoGradGuard no_grad;
    const auto rounded = [](const at::Tensor& tensor) { return tensor.to(GetParam()).to(at::kDouble); };
    const at::Tensor sum = at::linear(rounded(x), rounded(weight), bias.to(at::kDouble));
    return (activation.empty() ? sum : activate(sum, activation)).to(at::kFloat);
  }

  /// Where LibTorch multiplies bfloat16, because the machine lacks the instructions or has AMX, results are rounded to bfloat16.
  static double tolerance() {
    const auto type = GetParam() == at::kFloat ? kernels::DataType::kFloat32 : kernels::DataType::kBfloat16;
    return GetParam() == at::kFloat || kernels::cpu::has_packed_map(type) ? 1e-5 : 0.02;
  }

  at::Tensor x, weight, bias;
  PackedWeights weights{GetParam()};
};

TEST_P(PackedWeightsTest, EqualsTheLinearMapOfRoundedOperands) {
  const PackedWeights::Scope scope(&weights);
  for (const char* activation : {"", "gelu", "gelu_tanh", "quick_gelu", "silu"}) {
    const at::Tensor y = map(activation);
    if (!y.defined()) GTEST_SKIP() << "this machine lacks the instructions";
    EXPECT_TRUE(at::allclose(y, expected(activation), 0, tolerance())) << activation;
  }
  bias = at::Tensor();
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(at::allclose(map(), at::linear(x.to(GetParam()).to(at::kFloat), weight.to(GetParam()).to(at::kFloat)), 0, tolerance()));
}

TEST_P(PackedWeightsTest, AChangedWeightIsCopiedAgain) {
  const PackedWeights::Scope scope(&weights);
  if (!map().defined()) GTEST_SKIP() << "this machine lacks the instructions";
  const at::Tensor before = map();
  {
    const at::NoGradGuard no_grad;
    weight.mul_(2);
  }
  EXPECT_FALSE(at::equal(map(), before));
  EXPECT_TRUE(at::allclose(map(), expected(), 0, tolerance()));
}

TEST_P(PackedWeightsTest, NothingIsPackedOutsideAScopeOrWithGradientsOrOtherTypes) {
  EXPECT_FALSE(map().defined());
  const PackedWeights::Scope scope(&weights);
  EXPECT_TRUE(PackedWeights::in_scope());
  EXPECT_FALSE(PackedWeights::map(x, weight, bias).defined());
  {
    const PackedWeights::Scope inner(nullptr);
    EXPECT_FALSE(map().defined());
  }
  std::thread([&] { EXPECT_FALSE(map().defined()); }).join();
  x = x.to(at::kDouble);
  EXPECT_FALSE(map().defined());
}

TEST_P(PackedWeightsTest, WithoutTheInstructionsLibTorchMultiplies) {
  const PackedWeights::Scope scope(&weights);
  ASSERT_TRUE(kernels::use_instruction_set("portable"));
  if (GetParam() == at::kFloat) {
    EXPECT_FALSE(map().defined());
  } else {
    EXPECT_TRUE(at::allclose(map("gelu"), expected("gelu"), 0, 0.02));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, PackedWeightsTest, testing::Values(at::kFloat, at::kBFloat16),
                         [](const auto& each) { return std::string(each.param == at::kFloat ? "float32" : "bfloat16"); });

}  // namespace
}  // namespace tessera
