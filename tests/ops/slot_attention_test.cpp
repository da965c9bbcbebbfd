#include <cmath>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "src/base/avoided_flops.h"
#include "src/measure/step_meter.h"
#include "src/models/autocast.h"
#include "tests/ops/largest_allocation.h"
#include "tests/support/error_of.h"
#include "tests/support/gradcheck.h"
#include <tessera/ops/slot_attention.h>

namespace tessera {
namespace {

struct SlotSizes {
  std::int64_t batch, tokens, width, projections, group, key, value;
};

// With the first four sizes, the operator folds the projections into the queries. With the last two it projects the tokens, because
// many slots share a projection or a sample has only one token.
const std::vector<SlotSizes> kSizes = {{3, 9, 8, 4, 1, 5, 5},  {2, 12, 6, 3, 2, 4, 4},  {2, 7, 5, 3, 1, 4, 6},
                                       {1, 20, 3, 1, 1, 2, 2}, {2, 6, 10, 2, 16, 3, 3}, {2, 1, 6, 3, 2, 4, 4}};

bool is_shared(const SlotSizes& s) {
  return s.key == s.value;
}

SlotAttentionInputs random_inputs(const SlotSizes& s, at::ScalarType type = at::kDouble) {
  at::manual_seed(5);
  const auto leaf = [&](at::IntArrayRef sizes) { return at::randn(sizes, at::kDouble).to(type).requires_grad_(true); };
  SlotAttentionInputs in;
  in.tokens = leaf({s.batch, s.tokens, s.width});
  in.mask = at::rand({s.batch, s.tokens}) < 0.7;
  in.mask.select(1, 0).fill_(true);
  in.queries = leaf({s.projections, s.group, s.key});
  in.key_weight = leaf({s.projections, s.key, s.width});
  in.value_weight = is_shared(s) ? in.key_weight : leaf({s.projections, s.value, s.width});
  in.value_bias = leaf({s.projections, s.value});
  return in;
}

std::vector<at::Tensor> leaves_of(const SlotAttentionInputs& in) {
  std::vector<at::Tensor> leaves = {in.tokens, in.queries, in.key_weight};
  if (!in.value_weight.is_same(in.key_weight)) leaves.push_back(in.value_weight);
  if (in.value_bias.defined()) leaves.push_back(in.value_bias);
  return leaves;
}

// Computes one slot at a time and projects every token for it.
SlotAttentionOutputs slot_by_slot(const SlotAttentionInputs& in) {
  const std::int64_t group = in.queries.size(1), slots = in.queries.size(0) * group;
  const double scale = 1 / std::sqrt(static_cast<double>(in.queries.size(2)));
  std::vector<at::Tensor> heads, attention;
  for (std::int64_t slot = 0; slot < slots; ++slot) {
    const std::int64_t k = slot / group;
    at::Tensor values = at::matmul(in.tokens, in.value_weight[k].t());  // [B, N, E]
    if (in.value_bias.defined()) values = values + in.value_bias[k];
    at::Tensor scores = at::matmul(at::matmul(in.tokens, in.key_weight[k].t()), in.queries[k][slot % group]) * scale;
    if (in.mask.defined()) scores = scores.masked_fill(~in.mask, -1e30);
    at::Tensor weights = scores.softmax(1);
    if (in.mask.defined()) weights = weights * in.mask;
    attention.push_back(weights);
    heads.push_back((weights.unsqueeze(2) * values).sum(1));
  }
  return {at::stack(heads, 1), at::stack(attention, 1)};
}

// Returns the gradients of a loss that is a random weighted sum of both outputs.
std::vector<at::Tensor> collect_gradients(const SlotAttentionOutputs& out, const std::vector<at::Tensor>& leaves) {
  at::manual_seed(9);
  const at::Tensor loss = (out.heads * at::randn(out.heads.sizes(), at::kDouble)).sum() +
                          (out.attention * at::randn(out.attention.sizes(), at::kDouble)).sum();
  return torch::autograd::grad({loss}, leaves);
}

void expect_slots_near(const at::Tensor& ours, const at::Tensor& theirs, double tolerance) {
  ASSERT_EQ(ours.sizes(), theirs.sizes());
  EXPECT_LE((ours.to(at::kDouble) - theirs.to(at::kDouble)).abs().max().item<double>(),
            tolerance * (1 + theirs.abs().max().item<double>()));
}

bool is_folded(const SlotAttentionInputs& in) {
  const std::int64_t before = AvoidedFlops::total();
  slot_attention(in);
  return AvoidedFlops::total() > before;
}

TEST(SlotAttention, MatchesProjectingEveryTokenForEachSlot) {
  int folded = 0;
  for (const SlotSizes& sizes : kSizes) {
    SCOPED_TRACE(at::IntArrayRef({sizes.batch, sizes.tokens, sizes.width, sizes.projections, sizes.group}));
    for (const bool masked : {true, false}) {
      for (const bool bias : {true, false}) {
        SlotAttentionInputs in = random_inputs(sizes);
        if (!masked) in.mask = at::Tensor();
        if (!bias) in.value_bias = at::Tensor();
        const SlotAttentionOutputs ours = slot_attention(in), theirs = slot_by_slot(in);
        expect_slots_near(ours.heads, theirs.heads, 1e-12);
        expect_slots_near(ours.attention, theirs.attention, 1e-12);
        const auto our_gradients = collect_gradients(ours, leaves_of(in)),
                   their_gradients = collect_gradients(theirs, leaves_of(in));
        for (std::size_t i = 0; i < our_gradients.size(); ++i) expect_slots_near(our_gradients[i], their_gradients[i], 1e-11);
      }
    }
    folded += is_folded(random_inputs(sizes)) ? 1 : 0;
  }
  EXPECT_EQ(folded, 4) << "both forms must be tested";
}

TEST(SlotAttention, GradientsMatchFiniteDifferences) {
  for (const SlotSizes& sizes :
       {SlotSizes{2, 5, 3, 2, 2, 3, 3}, SlotSizes{2, 5, 3, 2, 1, 2, 4}, SlotSizes{2, 3, 4, 1, 8, 2, 2}}) {
    const SlotAttentionInputs in = random_inputs(sizes);
    const at::Tensor head_weights = at::randn({sizes.batch, sizes.projections * sizes.group, sizes.value}, at::kDouble),
                     attention_weights =
                         at::randn({sizes.batch, sizes.projections * sizes.group, sizes.tokens}, at::kDouble);
    expect_gradients_match(leaves_of(in), [&] {
      const SlotAttentionOutputs out = slot_attention(in);
      return (out.heads * head_weights).sum() + (out.attention * attention_weights).sum();
    });
  }
}

TEST(SlotAttention, SecondDerivativesMatchFiniteDifferences) {
  const SlotAttentionInputs in = random_inputs({2, 5, 3, 2, 1, 3, 3});
  ASSERT_TRUE(is_folded(in));
  expect_gradients_match(
      leaves_of(in),
      [&] {
        const at::AutoGradMode grad(true);  // needed because expect_gradients_match turns gradients off to compute finite differences
        const auto gradients =
            torch::autograd::grad({slot_attention(in).heads.square().sum()}, {in.tokens, in.key_weight}, {},
                                  std::nullopt, /*create_graph=*/true);
        return gradients[0].square().sum() + gradients[1].sin().sum();
      },
      1e-5);
}

TEST(SlotAttention, PaddingHasNoEffectEvenIfItIsNan) {
  for (const SlotSizes& sizes : kSizes) {
    SlotAttentionInputs plain = random_inputs(sizes), filled = random_inputs(sizes);
    filled.tokens = plain.tokens.detach().masked_fill(~plain.mask.unsqueeze(-1), std::nan("")).requires_grad_(true);
    const SlotAttentionOutputs ours = slot_attention(filled), theirs = slot_attention(plain);
    EXPECT_TRUE(at::equal(ours.heads, theirs.heads));
    EXPECT_TRUE(at::equal(ours.attention, theirs.attention));
    const auto gradients = collect_gradients(ours, leaves_of(filled)), wanted = collect_gradients(theirs, leaves_of(plain));
    for (std::size_t i = 0; i < gradients.size(); ++i) EXPECT_TRUE(at::equal(gradients[i], wanted[i])) << i;
    EXPECT_EQ(gradients[0].masked_select(~plain.mask.unsqueeze(-1)).abs().sum().item<double>(), 0);
  }
}

TEST(SlotAttention, RowWithoutRealTokensGivesZerosAndNoGradient) {
  for (const SlotSizes& sizes : kSizes) {
    SlotAttentionInputs in = random_inputs(sizes);
    in.mask[0].fill_(false);
    in.tokens = in.tokens.detach().index_fill(0, at::tensor({0}, at::kLong), std::nan("")).requires_grad_(true);
    const SlotAttentionOutputs out = slot_attention(in);
    EXPECT_EQ(out.heads[0].abs().sum().item<double>(), 0) << "the value bias must not appear either";
    EXPECT_EQ(out.attention[0].abs().sum().item<double>(), 0);
    const auto gradients = collect_gradients(out, leaves_of(in));
    for (const at::Tensor& gradient : gradients) EXPECT_TRUE(gradient.isfinite().all().item<bool>());
    EXPECT_EQ(gradients[0][0].abs().sum().item<double>(), 0);
  }
}

TEST(SlotAttention, LargeScoresStayFinite) {
  SlotAttentionInputs in = random_inputs({2, 9, 8, 4, 1, 5, 5}, at::kFloat);
  in.queries = (in.queries.detach() * 1e8).requires_grad_(true);
  const SlotAttentionOutputs out = slot_attention(in);
  expect_slots_near(out.attention.sum(2), at::ones({2, 4}), 1e-6);
  for (const at::Tensor& gradient : collect_gradients(out, leaves_of(in)))
    EXPECT_TRUE(gradient.isfinite().all().item<bool>());
}

// With B = 8, N = 64, L = 16 and D = 16, the projections of all tokens would be 8 * 64 * 16 * 16 numbers at once.
TEST(SlotAttention, NeverHoldsAProjectionOfEveryToken) {
  const SlotAttentionInputs in = random_inputs({8, 64, 32, 16, 1, 16, 16}, at::kFloat);
  const LargestAllocation allocation;
  slot_attention(in).heads.sum().backward();
  EXPECT_LE(allocation.bytes() * 4, 8 * 64 * 16 * 16 * 4) << "only the tokens or the scores [B, L, N] may be this large";
}

TEST(SlotAttention, CountsTheFlopsThatFoldingAvoids) {
  const SlotAttentionInputs in = random_inputs({3, 20, 32, 4, 2, 8, 8}, at::kFloat);
  const std::int64_t before = AvoidedFlops::total();
  const FlopCounter counter;
  slot_attention(in);
  const double projected = 2.0 * 3 * 20 * (4 * 8 * 32 + 8 * (8 + 8));  // FLOPs of projecting all tokens, of the scores, and of the sums
  EXPECT_EQ(counter.flops() + static_cast<double>(AvoidedFlops::total() - before), projected);
  EXPECT_LT(counter.flops(), 0.6 * projected);
}

TEST(SlotAttention, RunsInTheAutocastTypeWithAFloatSoftmax) {
  const SlotAttentionInputs in = random_inputs({3, 9, 8, 4, 1, 5, 5}, at::kFloat);
  const SlotAttentionOutputs exact = slot_attention(in);
  SlotAttentionOutputs low;
  {
    const Autocast autocast(at::kCPU);
    low = slot_attention(in);
  }
  EXPECT_EQ(low.heads.scalar_type(), at::kBFloat16);
  EXPECT_EQ(low.attention.scalar_type(), at::kFloat);
  expect_slots_near(low.attention.sum(2), at::ones({3, 4}), 1e-5);
  expect_slots_near(low.heads, exact.heads, 0.05);
  const auto gradients = collect_gradients(low, leaves_of(in)), wanted = collect_gradients(exact, leaves_of(in));
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    EXPECT_EQ(gradients[i].scalar_type(), at::kFloat);
    expect_slots_near(gradients[i], wanted[i], 0.1);
  }
}

TEST(SlotAttention, ErrorsNameWrongInputs) {
  const auto error = [](const std::function<void(SlotAttentionInputs&)>& spoil) {
    SlotAttentionInputs in = random_inputs({2, 7, 5, 3, 1, 4, 6});
    spoil(in);
    return error_of<c10::Error>([&] { slot_attention(in); });
  };
  EXPECT_EQ(error([](auto& in) { in.tokens = in.tokens[0]; }),
            "slot_attention: tokens must be floating [B, N, d] with N at least 1, got Double [7, 5]");
  EXPECT_EQ(error([](auto& in) { in.key_weight = in.key_weight.narrow(0, 0, 2); }),
            "slot_attention: key_weight must be [K, D, d] = [3, 4, 5], got [2, 4, 5]");
  EXPECT_EQ(error([](auto& in) { in.value_weight = in.value_weight.narrow(2, 0, 4); }),
            "slot_attention: value_weight must be [K, E, d] = [3, E, 5], got [3, 6, 4]");
  EXPECT_EQ(error([](auto& in) { in.value_bias = in.value_bias.t(); }),
            "slot_attention: value_bias must be [K, E] = [3, 6], got [6, 3]");
  EXPECT_EQ(error([](auto& in) { in.mask = in.mask.to(at::kFloat); }),
            "slot_attention: mask must be bool [B, N] = [2, 7], got Float [2, 7]");
}

}  // namespace
}  // namespace tessera
