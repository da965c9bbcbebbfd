#include <limits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "src/models/autocast.h"
#include "tests/ops/largest_allocation.h"
#include "tests/support/error_of.h"
#include "tests/support/gradcheck.h"
#include <tessera/ops/token_max_projection.h>

namespace tessera {
namespace {

struct ProjectionInputs {
  at::Tensor tokens, mask, table, bias;
};

struct ProjectionShape {
  std::int64_t batch, positions, vocabulary, width;
};

// Returns random inputs that all require a gradient. `real` is the share of real positions; 1 means no mask.
ProjectionInputs random_projection_inputs(const ProjectionShape& s, at::ScalarType dtype, double real = 1) {
  at::manual_seed(7);
  ProjectionInputs in;
  in.tokens = at::randn({s.batch, s.positions, s.width}, at::kDouble);
  in.table = 0.3 * at::randn({s.vocabulary, s.width}, at::kDouble);
  in.bias = 0.5 * at::randn({s.vocabulary}, at::kDouble) - 1.0;  // so that about half of the maxima are below 0
  if (real < 1) in.mask = at::rand({s.batch, s.positions}) < real;
  for (at::Tensor* each : {&in.tokens, &in.table, &in.bias})
    *each = each->to(at::kFloat).to(dtype).requires_grad_(true);
  return in;
}

TokenMaxProjection project(const ProjectionInputs& in) {
  return token_max_projection(in.tokens, in.mask, in.table, in.bias);
}

// Computes token_max_projection() by its definition, with all products [B, N, V] in memory at once.
TokenMaxProjection composed(const ProjectionInputs& in) {
  at::Tensor products = at::matmul(in.tokens, in.table.t()) + in.bias;
  if (!in.mask.defined()) {
    const auto [value, position] = products.max(1);
    return {value.relu().log1p(), position};
  }
  products = products.masked_fill(in.mask.logical_not().unsqueeze(-1), -std::numeric_limits<double>::infinity());
  const auto [value, position] = products.max(1);
  const at::Tensor empty = in.mask.any(1, true).logical_not();
  return {value.masked_fill(empty, 0).relu().log1p(), position.masked_fill(empty, -1)};
}

// Returns the gradients of tokens, table and bias for a fixed random gradient of the encoding.
std::vector<at::Tensor> collect_gradients(const at::Tensor& encoding, const ProjectionInputs& in) {
  at::manual_seed(8);
  const at::Tensor weight = at::randn(encoding.sizes(), at::kDouble).to(encoding.scalar_type());
  return torch::autograd::grad({encoding}, {in.tokens, in.table, in.bias}, {weight});
}

ProjectionInputs as(const ProjectionInputs& in, at::ScalarType dtype) {
  const auto leaf = [&](const at::Tensor& x) { return x.detach().to(dtype).requires_grad_(true); };
  return {leaf(in.tokens), in.mask, leaf(in.table), leaf(in.bias)};
}

void expect_near(const char* what, const at::Tensor& ours, const at::Tensor& theirs, double tolerance) {
  ASSERT_EQ(ours.sizes(), theirs.sizes()) << what;
  const double bound = tolerance * (1 + (theirs.numel() > 0 ? theirs.abs().max().item<double>() : 0));
  EXPECT_TRUE(at::allclose(ours.to(at::kDouble), theirs.to(at::kDouble), 0, bound)) << what;
}

const std::vector<ProjectionShape> kProjectionShapes = {{1, 1, 1, 1},      {1, 1, 2, 3},     {2, 5, 7, 4},       {3, 1, 33, 8},
                                    {1, 9, 300, 20},   {5, 50, 513, 24}, {12, 196, 100, 16}, {9, 49, 1030, 12},
                                    {2, 500, 257, 10}, {40, 7, 2100, 5}};

TEST(TokenMaxProjectionOperator, MatchesTheComposedOperationsForwardAndBackward) {
  for (const ProjectionShape& shape : kProjectionShapes) {
    for (const double real : {1.0, 0.6, 0.1}) {
      SCOPED_TRACE(testing::Message() << "B=" << shape.batch << " N=" << shape.positions << " V=" << shape.vocabulary
                                      << " w=" << shape.width << " real=" << real);
      const ProjectionInputs in = random_projection_inputs(shape, at::kFloat, real), wide = as(in, at::kDouble);
      const TokenMaxProjection ours = project(in), theirs = composed(wide);
      EXPECT_EQ(ours.encoding.scalar_type(), at::kFloat);
      expect_near("encoding", ours.encoding, theirs.encoding, 1e-5);
      EXPECT_TRUE(at::equal(ours.argmax, theirs.argmax));
      const auto gradients = collect_gradients(ours.encoding, in), wanted = collect_gradients(theirs.encoding, wide);
      for (std::size_t i = 0; i < gradients.size(); ++i)
        expect_near(std::vector{"tokens", "table", "bias"}[i], gradients[i], wanted[i], 1e-5);
    }
  }
}

TEST(TokenMaxProjectionOperator, Float64MatchesTheComposedOperations) {
  for (const ProjectionShape& shape : kProjectionShapes) {
    const ProjectionInputs in = random_projection_inputs(shape, at::kDouble, 0.6);
    const TokenMaxProjection ours = project(in), theirs = composed(in);
    EXPECT_EQ(ours.encoding.scalar_type(), at::kDouble);
    expect_near("encoding", ours.encoding, theirs.encoding, 1e-12);
    EXPECT_TRUE(at::equal(ours.argmax, theirs.argmax));
    const auto gradients = collect_gradients(ours.encoding, in), wanted = collect_gradients(theirs.encoding, in);
    for (std::size_t i = 0; i < gradients.size(); ++i) expect_near("gradient", gradients[i], wanted[i], 1e-12);
  }
}

TEST(TokenMaxProjectionOperator, GradientMatchesFiniteDifferences) {
  for (const double real : {1.0, 0.5}) {
    const ProjectionInputs in = random_projection_inputs({3, 4, 6, 3}, at::kDouble, real);
    expect_gradients_match({in.tokens, in.table, in.bias}, [&] {
      const at::Tensor encoding = project(in).encoding;
      return (encoding * at::arange(encoding.numel()).view(encoding.sizes())).sum();
    });
  }
}

TEST(TokenMaxProjectionOperator, LowestRealPositionWinsATie) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    ProjectionInputs in = random_projection_inputs({2, 6, 40, 4}, dtype);
    {
      const at::NoGradGuard no_grad;
      in.table.slice(0, 0, 20).zero_();  // makes all positions tie for these words of the vocabulary
      in.bias.slice(0, 0, 10).fill_(0.5);
      in.bias.slice(0, 10, 20).fill_(-0.5);
    }
    EXPECT_TRUE(project(in).argmax.slice(1, 0, 20).eq(0).all().item<bool>());
    in.mask = at::ones({2, 6}, at::kBool);
    in.mask[0].slice(0, 0, 3).fill_(false);
    const TokenMaxProjection out = project(in);
    EXPECT_TRUE(out.argmax[0].slice(0, 0, 20).eq(3).all().item<bool>());
    EXPECT_TRUE(out.argmax[1].slice(0, 0, 20).eq(0).all().item<bool>());
    EXPECT_TRUE(out.encoding.slice(1, 10, 20).eq(0).all().item<bool>());
  }
}

TEST(TokenMaxProjectionOperator, PaddingHasNoEffectAndNoGradient) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    for (const double spoiled : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
      ProjectionInputs in = random_projection_inputs({6, 11, 70, 9}, dtype, 0.5);
      in.mask[2].fill_(false);
      const TokenMaxProjection clean = project(in);
      const auto wanted = collect_gradients(clean.encoding, in);
      ProjectionInputs dirty = as(in, dtype);
      dirty.tokens =
          dirty.tokens.detach().masked_fill(in.mask.logical_not().unsqueeze(-1), spoiled).requires_grad_(true);
      const TokenMaxProjection out = project(dirty);
      EXPECT_TRUE(at::equal(out.encoding, clean.encoding));
      EXPECT_TRUE(at::equal(out.argmax, clean.argmax));
      EXPECT_TRUE(out.encoding[2].eq(0).all().item<bool>());
      EXPECT_TRUE(out.argmax[2].eq(-1).all().item<bool>());
      const auto gradients = collect_gradients(out.encoding, dirty);
      for (std::size_t i = 0; i < gradients.size(); ++i) EXPECT_TRUE(at::equal(gradients[i], wanted[i]));
      EXPECT_TRUE(gradients[0].masked_select(in.mask.logical_not().unsqueeze(-1)).eq(0).all().item<bool>());
    }
  }
}

TEST(TokenMaxProjectionOperator, NanAtARealPositionIsNotHidden) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    for (const std::int64_t position : {0, 2, 4}) {
      const ProjectionInputs in = random_projection_inputs({2, 5, 90, 3}, dtype);
      in.tokens.detach()[1][position].fill_(std::numeric_limits<double>::quiet_NaN());
      const TokenMaxProjection out = project(in);
      EXPECT_TRUE(out.encoding[1].isnan().all().item<bool>());
      EXPECT_TRUE(out.argmax[1].eq(position).all().item<bool>());
      EXPECT_FALSE(out.encoding[0].isnan().any().item<bool>());
      EXPECT_TRUE(collect_gradients(out.encoding, in)[1].isnan().all().item<bool>());
    }
  }
}

TEST(TokenMaxProjectionOperator, EntryOfZeroHasNoGradient) {
  const ProjectionInputs in = random_projection_inputs({3, 5, 50, 4}, at::kFloat);
  {
    const at::NoGradGuard no_grad;
    in.table[7].zero_();
    in.bias[7] = 0;  // makes the maximum exactly 0
    in.table[8].zero_();
    in.bias[8] = -1;
  }
  const auto gradients = collect_gradients(project(in).encoding, in);
  for (const std::int64_t column : {7, 8}) {
    EXPECT_TRUE(gradients[1][column].eq(0).all().item<bool>());
    EXPECT_EQ(gradients[2][column].item<float>(), 0);
  }
}

TEST(TokenMaxProjectionOperator, AllocatesNoBlockLargerThanTheResultsAndTheTable) {
  const ProjectionInputs in = random_projection_inputs({8, 196, 4000, 16}, at::kFloat);
  const LargestAllocation largest;
  const TokenMaxProjection out = project(in);
  collect_gradients(out.encoding, in);
  EXPECT_LE(largest.bytes(),
            static_cast<std::int64_t>(out.argmax.nbytes()));  // the size of [B, V]; [B, N, V] would take 98 times as much
}

TEST(TokenMaxProjectionOperator, ComputesOnlyRequestedGradients) {
  ProjectionInputs in = random_projection_inputs({2, 5, 40, 4}, at::kFloat);
  const auto wanted = collect_gradients(project(in).encoding, in);
  for (const int only : {0, 1, 2}) {
    ProjectionInputs some = as(in, at::kFloat);
    at::Tensor* const each[] = {&some.tokens, &some.table, &some.bias};
    for (int i = 0; i < 3; ++i) each[i]->requires_grad_(i == only);
    const at::Tensor encoding = project(some).encoding;
    at::manual_seed(8);
    const at::Tensor weight = at::randn(encoding.sizes(), at::kDouble).to(at::kFloat);
    EXPECT_TRUE(at::equal(torch::autograd::grad({encoding}, {*each[only]}, {weight})[0], wanted[only]));
  }
}

TEST(TokenMaxProjectionOperator, NarrowTypesAndAutocastComputeInFloat) {
  const ProjectionInputs in = random_projection_inputs({3, 5, 40, 4}, at::kFloat, 0.7);
  const at::Tensor expected = project(in).encoding;
  {
    const Autocast autocast(at::kCPU);
    EXPECT_TRUE(at::equal(project(in).encoding, expected));
  }
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const ProjectionInputs narrow = as(in, dtype), rounded = as(narrow, at::kFloat);
    const at::Tensor encoding = project(narrow).encoding, wide = project(rounded).encoding;
    EXPECT_EQ(encoding.scalar_type(), at::kFloat);
    EXPECT_TRUE(at::equal(encoding, wide));
    const auto gradients = collect_gradients(encoding, narrow), wanted = collect_gradients(wide, rounded);
    for (std::size_t i = 0; i < gradients.size(); ++i) EXPECT_TRUE(at::equal(gradients[i], wanted[i].to(dtype)));
  }
}

TEST(TokenMaxProjectionOperator, AcceptsNonContiguousInputsAndEmptyBatches) {
  const ProjectionInputs in = random_projection_inputs({4, 6, 30, 8}, at::kFloat, 0.7);
  const TokenMaxProjection expected = project(in);
  const at::Tensor strided = in.tokens.detach().transpose(0, 1).contiguous().transpose(0, 1),
                   table = in.table.detach().t().contiguous().t(), mask = in.mask.t().contiguous().t();
  EXPECT_TRUE(at::equal(token_max_projection(strided, mask, table, in.bias).encoding, expected.encoding));
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const ProjectionInputs none = random_projection_inputs({0, 6, 30, 8}, dtype, 0.7);
    const TokenMaxProjection out = project(none);
    EXPECT_EQ(out.encoding.sizes(), at::IntArrayRef({0, 30}));
    EXPECT_TRUE(collect_gradients(out.encoding, none)[1].eq(0).all().item<bool>());
  }
}

TEST(TokenMaxProjectionOperator, ErrorsNameWrongInputs) {
  const auto error = [](const std::function<void(ProjectionInputs&)>& spoil) {
    ProjectionInputs in = random_projection_inputs({2, 7, 5, 3}, at::kFloat, 0.5);
    spoil(in);
    return error_of<c10::Error>([&] { project(in); });
  };
  EXPECT_EQ(error([](auto& in) { in.tokens = in.tokens[0]; }),
            "token_max_projection: tokens must be floating [B, N, w] with N and w at least 1, got Float [7, 3]");
  EXPECT_EQ(error([](auto& in) { in.table = in.table.narrow(1, 0, 2); }),
            "token_max_projection: table must be Float [V, w] = [V, 3] as the tokens are, got Float [5, 2]");
  EXPECT_EQ(error([](auto& in) { in.table = in.table.to(at::kDouble); }),
            "token_max_projection: table must be Float [V, w] = [V, 3] as the tokens are, got Double [5, 3]");
  EXPECT_EQ(error([](auto& in) { in.bias = in.bias.narrow(0, 0, 4); }),
            "token_max_projection: bias must be floating [V] = [5], got Float [4]");
  EXPECT_EQ(error([](auto& in) { in.mask = in.mask.to(at::kFloat); }),
            "token_max_projection: mask must be bool [2, 7], got Float [2, 7]");
}

}  // namespace
}  // namespace tessera
