#include "src/ops/token_contrast.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "src/ops/dispatch.h"
#include "src/ops/operators.h"
#include <tessera/ops/numeric.h>

namespace tessera {
namespace {

struct Inputs {
  at::Tensor queries = at::randn({2, 5, 6}, at::kDouble), keys = at::randn({2, 5, 6}, at::kDouble),
             mask = at::tensor({1, 1, 0, 1, 0, 1, 1, 1, 1, 1}, at::kInt).view({2, 5}).to(at::kBool), scale = at::full({}, 3.0, at::kDouble),
             gradient = at::randn({2, 5}, at::kDouble);
};

using Loss = std::function<at::Tensor(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& scale)>;

/// Returns the losses, and the gradients of queries, keys and scale.
std::vector<at::Tensor> results(const Loss& loss, const Inputs& in, at::ScalarType type) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& each : {in.queries, in.keys}) leaves.push_back(each.to(type).requires_grad_());
  leaves.push_back(in.scale.to(type == at::kDouble ? at::kDouble : at::kFloat).requires_grad_());
  const at::Tensor losses = loss(leaves[0], leaves[1], leaves[2]);
  std::vector<at::Tensor> out = {losses.detach()};
  for (const at::Tensor& each : torch::autograd::grad({losses}, leaves, {in.gradient.to(losses.scalar_type())})) out.push_back(each);
  return out;
}

/// The operator that has a kernel on GPUs.
at::Tensor fused(const at::Tensor& queries, const at::Tensor& keys, const std::optional<at::Tensor>& mask, const at::Tensor& scale) {
  register_operators();
  using Signature = at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, const at::Tensor&, bool);
  return operation<Signature>("tessera::_token_contrast").call(queries, keys, mask, scale, false);
}

TEST(TokenContrastOperator, EqualsTheComposition) {
  at::manual_seed(3);
  const Inputs in;
  for (const bool masked : {false, true}) {
    const auto mask = masked ? std::optional(in.mask) : std::nullopt;
    const auto composed = [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& s) {
      return token_contrast(unit_rows(q), unit_rows(k), masked ? in.mask : at::Tensor(), s);
    };
    const auto with_operator = [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& s) { return fused(q, k, mask, s); };
    const auto expected = results(composed, in, at::kDouble);
    for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16}) {
      const auto ours = results(with_operator, in, type);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_EQ(ours[i].sizes(), expected[i].sizes());
        const double tolerance = type == at::kDouble ? 1e-12 : type == at::kFloat ? 1e-5 : 0.05;
        EXPECT_LT((ours[i].to(at::kDouble) - expected[i]).abs().max().item<double>(), tolerance) << "result " << i << ", " << type;
      }
    }
  }
}

TEST(TokenContrastOperator, NormalizesRowsOfAnyType) {
  at::manual_seed(4);
  const Inputs in;
  const at::Tensor q = in.queries.to(at::kBFloat16), k = in.keys.to(at::kBFloat16), scale = in.scale.to(at::kFloat);
  const at::Tensor losses = normalized_token_contrast(q, k, in.mask, scale);
  EXPECT_TRUE(at::equal(losses, token_contrast(unit_rows(q.to(at::kFloat)), unit_rows(k.to(at::kFloat)), in.mask, scale)));
  EXPECT_EQ(losses.scalar_type(), at::kFloat);
  EXPECT_EQ((losses == 0).logical_and(~in.mask).sum().item<std::int64_t>(), (~in.mask).sum().item<std::int64_t>());
}

TEST(TokenContrastOperator, TracesShapesOnMeta) {
  const auto meta = at::TensorOptions().device(at::kMeta);
  const at::Tensor q = at::empty({3, 7, 8}, meta.dtype(at::kBFloat16)), scale = at::empty({}, meta.dtype(at::kFloat));
  const at::Tensor losses = fused(q, q, std::nullopt, scale);
  EXPECT_EQ(losses.sizes(), at::IntArrayRef({3, 7}));
  EXPECT_EQ(losses.scalar_type(), at::kFloat);
}

}  // namespace
}  // namespace tessera
