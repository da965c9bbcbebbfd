#include "kernels/impact_scores/impact_scores.h"

#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/instruction_set.h"
#include "tests/support/test_name.h"

namespace tessera::kernels {
namespace {

bool chance(double share, std::mt19937_64& random) {
  return static_cast<double>(random() % 1000) < 1000 * share;
}

/// Random postings in a window of documents. Stores which documents have a posting (as a list and a bitmap), and each posting's impact.
template <class Impact>
struct Postings {
  std::vector<std::uint16_t> documents;
  std::vector<std::uint64_t> bits;
  std::vector<Impact> impacts;  // one per document, followed by kImpactPadding bytes

  Postings(std::int64_t window, double share, std::mt19937_64& random)
      : bits(static_cast<std::size_t>((window + 63) / 64), 0) {
    for (std::int64_t d = 0; d < window; ++d) {
      if (!chance(share, random)) continue;
      documents.push_back(static_cast<std::uint16_t>(d));
      bits[d / 64] |= std::uint64_t{1} << (d % 64);
      impacts.push_back(static_cast<Impact>(1 + random() % ((1 << (8 * sizeof(Impact))) - 1)));
    }
    impacts.resize(impacts.size() + kImpactPadding / sizeof(Impact), static_cast<Impact>(-1));
  }
};

class ImpactScores : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!use_instruction_set(GetParam().c_str())) GTEST_SKIP() << "this machine lacks " << GetParam();
  }
  void TearDown() override { use_instruction_set(""); }

  template <class Impact>
  static void expect_sums(std::int64_t window, double share, std::uint32_t weight) {
    std::mt19937_64 random(static_cast<std::uint64_t>(window));
    const Postings<Impact> postings(window, share, random);
    std::vector<std::uint32_t> expected(postings.bits.size() * 64);
    for (std::size_t d = 0; d < expected.size(); ++d) expected[d] = static_cast<std::uint32_t>(d);
    std::vector<std::uint32_t> of_list = expected, of_bits = expected;
    for (std::size_t i = 0; i < postings.documents.size(); ++i)
      expected[postings.documents[i]] += postings.impacts[i] * weight;
    const auto count = static_cast<std::int64_t>(postings.documents.size());
    const auto words = static_cast<std::int64_t>(postings.bits.size());
    const ImpactScoreKernels& kernels = impact_score_kernels();
    if constexpr (sizeof(Impact) == 1) {
      kernels.add_list_8(postings.documents.data(), postings.impacts.data(), count, weight, of_list.data());
      kernels.add_bitmap_8(postings.bits.data(), words, postings.impacts.data(), weight, of_bits.data());
    } else {
      kernels.add_list_16(postings.documents.data(), postings.impacts.data(), count, weight, of_list.data());
      kernels.add_bitmap_16(postings.bits.data(), words, postings.impacts.data(), weight, of_bits.data());
    }
    EXPECT_EQ(of_list, expected);
    EXPECT_EQ(of_bits, expected);
  }
};

TEST_P(ImpactScores, ListsAndBitmapsAddImpactTimesWeight) {
  for (const std::int64_t window : {1, 15, 64, 65, 1000, 65'536}) {
    for (const double share : {0.0, 0.01, 0.3, 1.0}) {
      for (const std::uint32_t weight : {1U, 255U, 32'767U}) {
        SCOPED_TRACE(testing::Message() << window << " documents, share " << share << ", weight " << weight);
        expect_sums<std::uint8_t>(window, share, weight);
        expect_sums<std::uint16_t>(window, share, weight);
      }
    }
  }
}

TEST_P(ImpactScores, CountsAndTakesScoresFromABoundAndClearsAll) {
  for (const std::uint32_t least : {1U, 500U, 0x80000001U, 0xFFFFFFFFU}) {
    std::mt19937_64 random(least);
    std::vector<std::uint32_t> scores(1008), expected, taken(1008);
    std::vector<std::uint16_t> expected_documents, documents(1008);
    for (std::size_t d = 0; d < scores.size(); ++d) {
      scores[d] = chance(0.2, random) ? least - 1 + static_cast<std::uint32_t>(random() % 2)
                                      : static_cast<std::uint32_t>(random());
      if (scores[d] < least) continue;
      expected_documents.push_back(static_cast<std::uint16_t>(d));
      expected.push_back(scores[d]);
    }
    const ImpactScoreKernels& kernels = impact_score_kernels();
    EXPECT_EQ(kernels.count_at_least(scores.data(), 1008, least), static_cast<std::int64_t>(expected.size()));
    const std::int64_t found = kernels.take_at_least(scores.data(), 1008, least, documents.data(), taken.data());
    ASSERT_EQ(found, static_cast<std::int64_t>(expected.size()));
    documents.resize(expected.size());
    taken.resize(expected.size());
    EXPECT_EQ(documents, expected_documents);
    EXPECT_EQ(taken, expected);
    EXPECT_EQ(scores, std::vector<std::uint32_t>(1008, 0));
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, ImpactScores, testing::Values("portable", "avx2", "avx512"), test_name<std::string>);

}  // namespace
}  // namespace tessera::kernels
