#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/models/text_conditioned_scores.h"
#include "tests/ops/largest_allocation.h"

namespace tessera {
namespace {

constexpr std::int64_t kWidth = 16;

/// Returns a pool with random weights and biases, so that each of them affects the results.
std::shared_ptr<TextConditionedPool> small_pool(const TextConditionedPoolSettings& settings,
                                                std::int64_t width = kWidth) {
  at::manual_seed(5);
  auto pool = std::make_shared<TextConditionedPool>(settings, width);
  const at::NoGradGuard no_grad;
  for (at::Tensor& parameter : pool->parameters()) parameter.add_(at::randn_like(parameter), 0.3);
  pool->to(at::kDouble);
  return pool;
}

at::Tensor cosines_with(const at::Tensor& pooled, const at::Tensor& texts) {
  return (pooled * texts).sum(-1) / pooled.norm(2, -1) / texts.norm(2, -1);
}

double worst(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

/// Tests pools with and without a zero token. There are enough texts to fill several tiles.
class Scores : public ::testing::TestWithParam<bool> {
 protected:
  std::shared_ptr<TextConditionedPool> pool = small_pool({.heads = 4, .zero_token = GetParam()});
  at::Tensor tokens = at::randn({3, 100, kWidth}, at::kDouble), texts = 3 * at::randn({1500, kWidth}, at::kDouble);
};

TEST_P(Scores, OfAllPairsMatchThePool) {
  const at::Tensor expected = cosines_with(pool->forward(tokens, texts).pooled, texts);
  EXPECT_LT(worst(TextConditionedScores(*pool, texts).similarity(tokens), expected), 1e-12);
}

TEST_P(Scores, OfCandidatesMatchTheirPairs) {
  const TextConditionedScores scores(*pool, texts);
  const at::Tensor candidates = at::randint(0, texts.size(0), {3, 1100}, at::kLong);
  EXPECT_LT(worst(scores.similarity(tokens, candidates), scores.similarity(tokens).gather(1, candidates)), 1e-12);
}

TEST_P(Scores, OfPatchesMatchThePoolOverOnePatch) {
  std::vector<at::Tensor> expected;
  for (std::int64_t p = 0; p < tokens.size(1); ++p)
    expected.push_back(cosines_with(pool->forward(tokens.narrow(1, p, 1), texts).pooled, texts));
  EXPECT_LT(worst(TextConditionedScores(*pool, texts).patch_similarity(tokens), at::stack(expected, 1)), 1e-12);
}

TEST_P(Scores, AttentionMatchesThePool) {
  const at::Tensor expected = pool->forward(tokens, texts).attention.transpose(1, 2);
  EXPECT_LT(worst(TextConditionedScores(*pool, texts).attention(tokens), expected), 1e-12);
}

TEST_P(Scores, ComputeInTheTypeOfTheWeights) {
  const TextConditionedScores exact(*pool, texts);
  const at::Tensor all = exact.similarity(tokens), patches = exact.patch_similarity(tokens);
  pool->to(at::kFloat);
  const TextConditionedScores scores(*pool, texts);
  EXPECT_EQ(scores.similarity(tokens).scalar_type(), at::kFloat);
  EXPECT_LT(worst(scores.similarity(tokens), all), 2e-6);
  EXPECT_LT(worst(scores.patch_similarity(tokens), patches), 2e-6);
}

INSTANTIATE_TEST_SUITE_P(ZeroToken, Scores, ::testing::Bool(),
                         [](const auto& each) { return each.param ? "WithZeroToken" : "WithoutZeroToken"; });

// The heads' outputs nearly cancel: they are a thousand times longer than their sum. Products in float32 could not resolve the sum's
// length.
TEST(TextConditionedScoresOf, PatchesKeepTheirLengthIfHeadsCancel) {
  const auto pool = small_pool({.heads = 2, .zero_token = false}, 4);
  const at::NoGradGuard no_grad;
  auto weights = pool->named_parameters();
  const std::vector<double> output = {1, 0, -0.999, 0, 0, 1, 0, -0.999, 0, 0, 0, 0, 0, 0, 0, 0};
  weights["attn.out_proj.weight"].copy_(at::tensor(output).view({4, 4}));
  weights["attn.out_proj.bias"].zero_();
  weights["attn.in_proj_weight"].slice(0, 8).copy_((1000 * at::randn({2, 4}, at::kDouble)).repeat({2, 1}));
  weights["attn.in_proj_bias"].slice(0, 8).zero_();
  const at::Tensor tokens = at::randn({1, 64, 4}, at::kDouble), texts = at::randn({3, 4}, at::kDouble);
  const at::Tensor expected = cosines_with(pool->forward(tokens.transpose(0, 1), texts).pooled, texts);  // [64, 3]
  pool->to(at::kFloat);
  EXPECT_LT(worst(TextConditionedScores(*pool, texts).patch_similarity(tokens)[0], expected), 5e-3);
}

TEST(TextConditionedScoresOf, ManyTextsAllocateOneTileAtATime) {
  const auto pool = small_pool({.heads = 4});
  const std::int64_t texts = 5000, patches = 100;
  const TextConditionedScores scores(*pool, at::randn({texts, kWidth}, at::kDouble));
  // The work on a single image is not divided among threads, so `largest` sees all allocations.
  const at::Tensor tokens = at::randn({1, patches, kWidth}, at::kDouble);
  const LargestAllocation largest;
  scores.similarity(tokens);
  EXPECT_LT(largest.bytes(), 4 * texts * patches * 8 / 4);
  EXPECT_LE(largest.bytes(), (std::int64_t{1} << 18) * 8);
}

TEST(TextConditionedScoresOf, HasNoGradient) {
  const auto pool = small_pool({.heads = 4});
  const TextConditionedScores scores(*pool, at::randn({3, kWidth}, at::kDouble).requires_grad_());
  const at::Tensor tokens = at::randn({2, 5, kWidth}, at::kDouble).requires_grad_();
  for (const at::Tensor& out : {scores.similarity(tokens), scores.patch_similarity(tokens), scores.attention(tokens)})
    EXPECT_FALSE(out.requires_grad());
}

TEST(TextConditionedScoresOf, RejectsOtherWidths) {
  const auto pool = small_pool({.heads = 4});
  EXPECT_THROW(TextConditionedScores(*pool, at::zeros({3, 8})), c10::Error);
  const TextConditionedScores scores(*pool, at::randn({3, kWidth}, at::kDouble));
  EXPECT_THROW(scores.similarity(at::zeros({2, 5, 8})), c10::Error);
  EXPECT_THROW(scores.similarity(at::zeros({2, 0, kWidth})), c10::Error);
  EXPECT_THROW(scores.similarity(at::zeros({2, 5, kWidth}), at::zeros({3, 1}, at::kLong)), c10::Error);
}

}  // namespace
}  // namespace tessera
