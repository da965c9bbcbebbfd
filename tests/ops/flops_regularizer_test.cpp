#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "src/models/autocast.h"
#include "tests/support/error_of.h"
#include <tessera/ops/flops_regularizer.h>

namespace tessera {
namespace {

at::Tensor random_encoding(std::int64_t rows, std::int64_t columns) {
  at::manual_seed(5);
  return at::rand({rows, columns}).to(at::kBFloat16).to(at::kDouble);
}

at::Tensor leaf(const at::Tensor& values, at::ScalarType dtype, at::Device device = at::kCPU) {
  return values.detach().to(device, dtype).requires_grad_(true);
}

at::Tensor gradient_of(const at::Tensor& encoding, bool dense = false) {
  return torch::autograd::grad({3 * flops_regularizer(encoding, dense)}, {encoding})[0];
}

TEST(FlopsRegularizerOperator, FusedMatchesComposed) {
  for (const auto& [rows, columns] : std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {7, 33}, {130, 1500}}) {
    const at::Tensor encoding = random_encoding(rows, columns);
    const at::Tensor ours = leaf(encoding, at::kFloat), theirs = leaf(encoding, at::kDouble);
    EXPECT_TRUE(at::allclose(flops_regularizer(ours).to(at::kDouble), flops_regularizer(theirs), 1e-6));
    EXPECT_TRUE(at::allclose(gradient_of(ours).to(at::kDouble), gradient_of(theirs), 1e-6));
  }
}

TEST(FlopsRegularizerOperator, NarrowTypesAreSummedInFloat) {
  const at::Tensor encoding = random_encoding(40, 70);
  const at::Tensor expected = flops_regularizer(leaf(encoding, at::kFloat));
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const at::Tensor narrow = leaf(encoding, dtype);
    const at::Tensor loss = flops_regularizer(narrow);
    EXPECT_EQ(loss.scalar_type(), at::kFloat);
    EXPECT_TRUE(at::equal(loss, expected));
    EXPECT_TRUE(at::equal(gradient_of(narrow), gradient_of(leaf(encoding, at::kFloat)).to(dtype)));
  }
}

TEST(FlopsRegularizerOperator, TheGradientIsOneRowThatAllRowsShare) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor encoding = leaf(random_encoding(40, 70), dtype);
    const at::Tensor gradient = gradient_of(encoding), dense = gradient_of(encoding, true);
    EXPECT_EQ(gradient.scalar_type(), dtype);
    EXPECT_EQ(gradient.strides(), (std::vector<std::int64_t>{0, 1}));
    EXPECT_EQ(gradient.storage().nbytes(), 70 * encoding.element_size());
    EXPECT_TRUE(dense.is_contiguous());
    EXPECT_TRUE(at::equal(gradient, dense));
  }
}

TEST(FlopsRegularizerOperator, StoredGradientsAreDense) {
  const at::Tensor encoding = leaf(random_encoding(9, 14), at::kFloat), expected = gradient_of(encoding);
  for (int pass = 1; pass <= 2; ++pass) {
    (3 * flops_regularizer(encoding)).backward();
    EXPECT_TRUE(encoding.grad().is_contiguous());
    EXPECT_TRUE(at::allclose(encoding.grad(), pass * expected));
  }
  const at::Tensor transposed = leaf(random_encoding(14, 9), at::kFloat).detach().t().requires_grad_(true);
  (3 * flops_regularizer(transposed)).backward();
  EXPECT_TRUE(transposed.grad().is_non_overlapping_and_dense());
}

TEST(FlopsRegularizerOperator, HooksAndOtherConsumersGetTheGradient) {
  const at::Tensor weights = leaf(random_encoding(9, 14), at::kFloat);
  const at::Tensor doubled = 2 * weights;
  doubled.retain_grad();
  at::Tensor seen;
  doubled.register_hook([&](const at::Tensor& gradient) { seen = gradient; });
  (3 * flops_regularizer(doubled) + doubled.square().sum()).backward();  // autograd adds two gradients
  const at::Tensor expected = gradient_of(doubled.detach().requires_grad_(true)) + 2 * doubled.detach();
  EXPECT_TRUE(at::allclose(seen, expected));
  EXPECT_TRUE(at::allclose(doubled.grad(), expected));
  EXPECT_TRUE(at::allclose(weights.grad(), 2 * expected));

  const auto with_hook_in_place = [&](bool dense) {
    const at::Tensor own = 2 * weights.detach().requires_grad_(true);
    own.register_hook([](at::Tensor gradient) { gradient.mul_(5); });
    (3 * flops_regularizer(own, dense)).backward();
  };
  EXPECT_NO_THROW(with_hook_in_place(true));
  EXPECT_THROW(with_hook_in_place(false), c10::Error);
}

TEST(FlopsRegularizerOperator, TheMetaFunctionsMatch) {
  const at::Tensor encoding = leaf(random_encoding(9, 14), at::kBFloat16, at::kMeta);
  const at::Tensor loss = flops_regularizer(encoding);
  EXPECT_EQ(loss.scalar_type(), at::kFloat);
  EXPECT_EQ(loss.dim(), 0);
  for (const bool dense : {false, true}) {
    const at::Tensor gradient = gradient_of(encoding, dense);
    EXPECT_EQ(gradient.sizes(), (std::vector<std::int64_t>{9, 14}));
    EXPECT_EQ(gradient.strides(), (std::vector<std::int64_t>{dense ? 14 : 0, 1}));
    EXPECT_EQ(gradient.scalar_type(), at::kBFloat16);
  }
}

TEST(FlopsRegularizerOperator, AcceptsNonContiguousEncodings) {
  const at::Tensor encoding = leaf(random_encoding(9, 14), at::kFloat);
  const at::Tensor strided = encoding.detach().t().contiguous().t().requires_grad_(true);
  EXPECT_TRUE(at::equal(flops_regularizer(strided), flops_regularizer(encoding)));
  EXPECT_TRUE(at::equal(gradient_of(strided), gradient_of(encoding)));
  const at::Tensor row = leaf(random_encoding(1, 14), at::kFloat).expand({5, 14});
  EXPECT_TRUE(at::allclose(flops_regularizer(row), flops_regularizer(row.contiguous())));
}

TEST(FlopsRegularizerOperator, AutocastChangesNothing) {
  const at::Tensor encoding = random_encoding(9, 14);
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const at::Tensor expected = flops_regularizer(encoding.to(dtype));
    const Autocast autocast(at::kCPU);
    EXPECT_TRUE(at::equal(flops_regularizer(encoding.to(dtype)), expected));
  }
}

TEST(FlopsColumnSums, MatchTheSumsOfTheRowsAndTheirGradient) {
  const at::Tensor encoding = random_encoding(40, 70), weights = at::rand({70}, at::kDouble);
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor own = leaf(encoding, dtype);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    const at::Tensor sums = flops_column_sums(own);
    at::autocast::set_autocast_enabled(at::kCPU, false);
    EXPECT_EQ(sums.scalar_type(), dtype == at::kDouble ? at::kDouble : at::kFloat);
    EXPECT_TRUE(at::allclose(sums.to(at::kDouble), own.detach().to(at::kDouble).sum(0), 1e-6));
    const at::Tensor gradient = torch::autograd::grad({(sums * weights.to(sums.scalar_type())).sum()}, {own})[0];
    EXPECT_TRUE(at::equal(gradient, weights.to(sums.scalar_type()).to(dtype).expand({40, 70})));
  }
}

TEST(FlopsRegularizerOperator, ErrorsNameWrongInputs) {
  const auto error = [](const at::Tensor& encoding) { return error_of<c10::Error>([&] { flops_regularizer(encoding); }); };
  EXPECT_EQ(error(at::zeros({4})), "flops_regularizer: encoding must be [N, V], got [4]");
  EXPECT_EQ(error(at::zeros({0, 4})),
            "flops_regularizer: encoding must hold at least one row and one column, got [0, 4]");
  EXPECT_EQ(error(at::zeros({4, 0})),
            "flops_regularizer: encoding must hold at least one row and one column, got [4, 0]");
  EXPECT_EQ(error(at::zeros({2, 2}, at::kLong)),
            "flops_regularizer: encoding must hold floating-point numbers, got Long");
}

TEST(FlopsRegularizerOperator, OnAGpuMatchesTheCpu) {
  if (!at::globalContext().hasCUDA()) GTEST_SKIP() << "no GPU";
  for (const auto& [rows, columns] : std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {7, 33}, {257, 3001}, {130, 30522}}) {
    const at::Tensor encoding = random_encoding(rows, columns);
    const at::Tensor theirs = leaf(encoding, at::kDouble);
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
      const at::Tensor ours = leaf(encoding, dtype, at::kCUDA);
      EXPECT_TRUE(at::allclose(flops_regularizer(ours).cpu().to(at::kDouble), flops_regularizer(theirs), 1e-5));
      for (const bool dense : {false, true}) {
        EXPECT_TRUE(at::allclose(gradient_of(ours, dense).cpu().to(at::kDouble), gradient_of(theirs),
                                 dtype == at::kFloat ? 1e-5 : 1e-2));
      }
    }
  }
}

}  // namespace
}  // namespace tessera
