#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/ops/residual_norm.h"
#include "src/ops/transformer_block.h"
#include "tests/support/error_of.h"
#include "tests/support/gradcheck.h"

namespace tessera {
namespace {

constexpr double kEpsilon = 1e-5;

at::Tensor leaf(at::IntArrayRef sizes) {
  return at::randn(sizes, at::kDouble).requires_grad_();
}

TEST(ResidualNorm, GradientsMatchFiniteDifferences) {
  at::manual_seed(1);
  const at::Tensor x = leaf({2, 3, 4}), value = leaf({2, 3, 4}), scale = leaf({4}), weight = leaf({4}), bias = leaf({4}), w = at::randn({2, 3, 4}, at::kDouble);
  const at::Tensor factors = at::tensor({1.25, 0.5}, at::kDouble);
  const ResidualStream stream = {x, {value, {}, scale, factors}};
  const NormParameters norm = {weight, bias, kEpsilon};
  expect_gradients_match({x, value, scale}, [&] { return (residual_sum(stream) * w).sum(); });
  expect_gradients_match({x, value, scale, weight, bias}, [&] { return (residual_norm(stream, norm, at::kDouble) * w).sum(); });
  expect_gradients_match({x, weight, bias}, [&] { return (residual_norm({x, {}}, norm, at::kDouble) * w).sum(); });
}

TEST(ResidualNorm, EqualsLibTorch) {
  at::manual_seed(2);
  const at::Tensor x = at::randn({3, 5, 8}), value = at::randn({3, 5, 8}), weight = at::randn({8}), bias = at::randn({8});
  EXPECT_TRUE(at::equal(residual_sum({x, {value}}), x + value));
  EXPECT_TRUE(at::equal(residual_norm({x, {value}}, {weight, bias, kEpsilon}, at::kFloat), at::layer_norm(x + value, {8}, weight, bias, kEpsilon)));
  const at::Tensor narrow = residual_norm({x, {value}}, {weight, bias, kEpsilon}, at::kBFloat16);
  EXPECT_TRUE(at::equal(narrow, at::layer_norm(x + value, {8}, weight, bias, kEpsilon).to(at::kBFloat16)));
  EXPECT_TRUE(residual_sum({x, {}}).is_same(x));
}

TEST(ResidualNorm, KeepsTheTypeOfTheStream) {
  const at::Tensor x = at::randn({3, 8}).to(at::kBFloat16), value = at::randn({3, 8}).to(at::kBFloat16), scale = at::randn({8});
  EXPECT_TRUE(at::equal(residual_sum({x, {value, {}, scale}}), (x.to(at::kFloat) + value.to(at::kFloat) * scale).to(at::kBFloat16)));
  EXPECT_EQ(residual_sum({x.to(at::kFloat), {value, {}, scale}}).scalar_type(), at::kFloat);
}

TEST(ResidualNorm, ComputesTheGradientOfTheBiasThatTheUpdateContains) {
  at::manual_seed(3);
  const at::Tensor x = leaf({2, 3, 4}), value = leaf({2, 3, 4}), map_bias = leaf({4}), scale = leaf({4}), w = at::randn({2, 3, 4}, at::kDouble);
  (residual_sum({x, {value, map_bias, scale, at::tensor({2.0, 0.0}, at::kDouble)}}) * w).sum().backward();
  EXPECT_TRUE(at::allclose(map_bias.grad(), value.grad().sum(at::IntArrayRef{0, 1})));
  EXPECT_GT(map_bias.grad().abs().sum().item<double>(), 0);
}

// A block with attention that has a parameter of its own: its queries, keys and values are multiplied elementwise.
struct Case {
  at::Tensor x = leaf({2, 3, 4}), value = leaf({2, 3, 4}), last_scale = leaf({4}), extra = leaf({4});
  BlockParts parts;

  explicit Case(bool gated) {
    parts.norm_1 = {leaf({4}), leaf({4}), kEpsilon};
    parts.norm_2 = {leaf({4}), leaf({4}), kEpsilon};
    parts.qkv = {leaf({12, 4}), leaf({12})};
    parts.out = {leaf({4, 4}), leaf({4})};
    if (gated) parts.gate = {leaf({5, 4}), leaf({5})};
    parts.fc = {leaf({5, 4}), leaf({5})};
    parts.projection = {leaf({4, 5}), leaf({4})};
    parts.scale_1 = leaf({4});
    parts.scale_2 = leaf({4});
    parts.factors_1 = at::tensor({1.5, 0.5}, at::kDouble);
    parts.factors_2 = at::tensor({0.25, 2.0}, at::kDouble);
    parts.activation = gated ? "silu" : "quick_gelu";
    parts.attention_parameters = {extra};
    parts.attention = [this](const at::Tensor& qkv) {
      const std::vector<at::Tensor> each = qkv.chunk(3, -1);
      return each[0] * each[1].sin() + each[2] * extra;
    };
  }
  std::vector<at::Tensor> leaves() const {
    std::vector<at::Tensor> out = {x, value, last_scale, extra, parts.scale_1, parts.scale_2};
    for (const NormParameters& norm : {parts.norm_1, parts.norm_2}) out.insert(out.end(), {norm.weight, norm.bias});
    for (const MapParameters& map : {parts.qkv, parts.out, parts.gate, parts.fc, parts.projection})
      if (map.weight.defined()) out.insert(out.end(), {map.weight, map.bias});
    return out;
  }
  ResidualStream run() const {
    return transformer_block({x, {value, {}, last_scale, at::tensor({1.0, 3.0}, at::kDouble)}}, parts);
  }
};

TEST(TransformerBlockFunction, GradientsMatchFiniteDifferences) {
  for (const bool gated : {false, true}) {
    at::manual_seed(4);
    const Case c(gated);
    const at::Tensor w = at::randn({2, 3, 4}, at::kDouble);
    expect_gradients_match(c.leaves(), [&] { return (residual_sum(c.run()) * w).sum(); });
  }
}

TEST(TransformerBlockFunction, CanRunBackwardAgainIfTheGraphIsKept) {
  at::manual_seed(5);
  const Case c(false);
  const at::Tensor loss = residual_sum(c.run()).square().sum();
  loss.backward({}, /*retain_graph=*/true);
  const at::Tensor once = c.parts.qkv.weight.grad().clone();
  loss.backward();
  EXPECT_TRUE(at::equal(c.parts.qkv.weight.grad(), 2 * once));
  EXPECT_THROW(loss.backward(), c10::Error);
}

TEST(TransformerBlockFunction, HasNoSecondDerivatives) {
  const Case c(false);
  EXPECT_EQ(error_of<c10::Error>([&] { torch::autograd::grad({c.run().update.value.sum()}, {c.x}, {}, std::nullopt, /*create_graph=*/true); }),
            "transformer blocks have no second derivatives");
}

TEST(TransformerBlockFunction, LeavesOutTheGradientsOfFrozenTensors) {
  at::manual_seed(6);
  const Case all(true), some(true);
  const std::vector<at::Tensor> from = all.leaves(), to = some.leaves();
  for (std::size_t i = 0; i < to.size(); ++i) {
    const at::NoGradGuard no_grad;
    to[i].copy_(from[i]);
    to[i].requires_grad_(i % 3 != 1);
  }
  residual_sum(all.run()).square().sum().backward();
  residual_sum(some.run()).square().sum().backward();
  for (std::size_t i = 0; i < to.size(); ++i) {
    ASSERT_EQ(to[i].grad().defined(), i % 3 != 1) << i;
    EXPECT_TRUE(i % 3 == 1 || at::allclose(to[i].grad(), from[i].grad())) << i;
  }
}

}  // namespace
}  // namespace tessera
