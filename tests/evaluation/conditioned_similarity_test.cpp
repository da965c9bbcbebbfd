#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/evaluation/metrics/conditioned_similarity.h"
#include "tests/support/error_of.h"

namespace tessera {
namespace {

class ConditionedSimilarities : public ::testing::Test {
 protected:
  ConditionedSimilarities() {
    at::manual_seed(2);
    pool = std::make_shared<TextConditionedPool>(TextConditionedPoolSettings{.heads = 2}, 8);
    tokens = at::randn({4, 6, 8});
    global = at::randn({4, 8});
    texts = at::randn({7, 8});
    texts[5] = texts[1].clone();
    texts[6] = texts[1].clone();
  }

  std::shared_ptr<TextConditionedPool> pool;
  at::Tensor tokens, global, texts;
};

TEST_F(ConditionedSimilarities, AreBitForBitEqualForEqualTexts) {
  const metrics::ConditionedSimilarity similarity(*pool, texts);
  for (const at::Tensor& scores : {similarity.exact(tokens), similarity.among_nearest(global, tokens, 7),
                                   similarity.of_patches(tokens), similarity.attention(tokens)}) {
    EXPECT_TRUE(scores.select(-1, 5).equal(scores.select(-1, 1)));
    EXPECT_TRUE(scores.select(-1, 6).equal(scores.select(-1, 1)));
    EXPECT_FALSE(scores.select(-1, 2).equal(scores.select(-1, 1)));
  }
}

// A matrix product may round equal rows differently at different positions. The similarities must be equal nevertheless.
TEST_F(ConditionedSimilarities, AreEqualForEqualCandidatesAtAnyPosition) {
  const TextConditionedPoolSettings settings;
  TextConditionedPool wide(settings, 64);
  at::Tensor many = at::randn({203, 64});
  for (const std::int64_t equal : {17, 100, 202}) many[equal] = many[1].clone();
  const metrics::ConditionedSimilarity similarity(wide, many);
  const at::Tensor scores = similarity.among_nearest(at::randn({3, 64}), at::randn({3, 49, 64}), 203);
  for (const std::int64_t equal : {17, 100, 202}) EXPECT_TRUE(scores.select(1, equal).equal(scores.select(1, 1)));
}

TEST_F(ConditionedSimilarities, WithAllTextsAsCandidatesAreExact) {
  const metrics::ConditionedSimilarity similarity(*pool, texts);
  for (const std::int64_t k : {7, 100})
    EXPECT_TRUE(at::allclose(similarity.among_nearest(global, tokens, k), similarity.exact(tokens), 0, 1e-6));
}

TEST_F(ConditionedSimilarities, RankOtherTextsBehindCandidatesByCosine) {
  const metrics::ConditionedSimilarity similarity(*pool, texts);
  const at::Tensor exact = similarity.exact(tokens), cosines = similarity.global(global),
                   among = similarity.among_nearest(global, tokens, 3);
  for (std::int64_t n = 0; n < 4; ++n) {
    const at::Tensor order = std::get<1>(cosines[n].sort(/*stable=*/true, 0, /*descending=*/true));
    for (std::int64_t place = 0; place < 7; ++place) {
      const auto text = order[place].item<std::int64_t>();
      const double expected = place < 3 ? exact[n][text].item<double>() : cosines[n][text].item<double>() - 4;
      EXPECT_NEAR(among[n][text].item<double>(), expected, 1e-6) << n << " " << text;
    }
  }
}

TEST_F(ConditionedSimilarities, PreferTheLowerTextAsCandidateForEqualCosines) {
  const metrics::ConditionedSimilarity similarity(*pool, texts);
  const at::Tensor among = similarity.among_nearest(texts.narrow(0, 1, 1), tokens.narrow(0, 0, 1), 2)[0];
  EXPECT_GE(among[1].item<double>(), -1);
  EXPECT_GE(among[5].item<double>(), -1);
  EXPECT_NEAR(among[6].item<double>(), 1 - 4, 1e-9);
}

TEST(TextConditionedPool, NamesTheSettingOfHeadsThatDoNotDivideTheWidth) {
  EXPECT_EQ(error_of([] { TextConditionedPool(TextConditionedPoolSettings{.heads = 2}, 3); }),
            "objective.heads: 2 do not divide the embedding's width of 3: set a number that does");
}

}  // namespace
}  // namespace tessera
