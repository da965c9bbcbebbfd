#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/attention/attention.h"
#include "kernels/cpu/instruction_set.h"

namespace tessera::kernels {
namespace {

using Floats = std::vector<float>;

struct Sequences {
  std::vector<std::int64_t> lengths;
  std::int64_t heads, width;
  bool causal;

  std::int64_t rows() const { return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}); }
  Floats values() const {
    std::mt19937 random(1);
    std::normal_distribution<float> draw;
    Floats out(static_cast<std::size_t>(rows() * 3 * heads * width));
    for (float& value : out) value = draw(random);
    return out;
  }

  Floats attend(const Floats& qkv, int threads = 1) const {
    std::vector<std::int32_t> offsets = {0};
    for (const std::int64_t length : lengths) offsets.push_back(offsets.back() + static_cast<std::int32_t>(length));
    AttentionForward call;
    call.problem.sequences = std::ssize(lengths);
    call.problem.rows = rows();
    call.problem.longest = std::ranges::max(lengths);
    call.problem.heads = heads;
    call.problem.head_width = width;
    call.problem.type = DataType::kFloat32;
    call.problem.causal = causal;
    call.problem.scale = 0.3f;
    const bool equal = std::ranges::min(lengths) == call.problem.longest;
    if (!equal) call.problem.offsets = offsets.data();
    Floats out(static_cast<std::size_t>(rows() * heads * width), std::nanf(""));
    call.qkv = qkv.data();
    call.output = out.data();
    const Status status = cpu::attention_forward(call, {.threads = threads, .run = {}});
    EXPECT_TRUE(status.ok()) << status.message();
    return out;
  }

  /// The output in float64.
  std::vector<double> expected(const Floats& qkv) const {
    std::vector<double> out;
    std::int64_t first = 0;
    const auto at = [&](std::int64_t row, std::int64_t part, std::int64_t head, std::int64_t c) {
      return static_cast<double>(qkv[static_cast<std::size_t>(((row * 3 + part) * heads + head) * width + c)]);
    };
    for (const std::int64_t length : lengths) {
      for (std::int64_t i = first; i < first + length; ++i) {
        for (std::int64_t head = 0; head < heads; ++head) {
          std::vector<double> weights, sums(static_cast<std::size_t>(width), 0);
          double total = 0;
          for (std::int64_t j = first; j < (causal ? i + 1 : first + length); ++j) {
            double score = 0;
            for (std::int64_t c = 0; c < width; ++c) score += at(i, 0, head, c) * at(j, 1, head, c);
            weights.push_back(std::exp(0.3 * score));
            total += weights.back();
          }
          for (std::size_t j = 0; j < weights.size(); ++j)
            for (std::int64_t c = 0; c < width; ++c)
              sums[static_cast<std::size_t>(c)] += weights[j] / total * at(first + static_cast<std::int64_t>(j), 2, head, c);
          out.insert(out.end(), sums.begin(), sums.end());
        }
      }
      first += length;
    }
    return out;
  }
};

class CpuAttention : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!use_instruction_set(GetParam())) GTEST_SKIP() << "this machine lacks " << GetParam();
  }
  void TearDown() override { use_instruction_set(""); }
};

TEST_P(CpuAttention, EqualsAttentionInDoublePrecision) {
  for (const bool causal : {false, true}) {
    for (const Sequences& sequences : {Sequences{{1}, 1, 1, causal}, Sequences{{50, 50}, 3, 64, causal}, Sequences{{3, 1, 77, 16, 17}, 2, 20, causal},
                                       Sequences{{256, 5}, 1, 33, causal}}) {
      const Floats qkv = sequences.values(), found = sequences.attend(qkv);
      const std::vector<double> expected = sequences.expected(qkv);
      ASSERT_EQ(found.size(), expected.size());
      for (std::size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], 5e-6) << "entry " << i << ", causal " << causal;
    }
  }
}

TEST_P(CpuAttention, ASequenceHasTheSameBitsInEveryBatchAndForAnyNumberOfThreads) {
  const Sequences all{{13, 9, 30}, 4, 64, true}, last{{30}, 4, 64, true};
  const Floats qkv = all.values(), together = all.attend(qkv);
  EXPECT_EQ(all.attend(qkv, 3), together);
  EXPECT_EQ(last.attend(Floats(qkv.end() - 30 * 3 * 4 * 64, qkv.end())), Floats(together.end() - 30 * 4 * 64, together.end()));
}

TEST_P(CpuAttention, LargeScoresAndEmptySequencesAreFinite) {
  const Sequences sequences{{2, 0, 3}, 1, 8, false};
  Floats qkv = sequences.values();
  for (float& value : qkv) value *= 100;
  for (const float value : sequences.attend(qkv)) EXPECT_TRUE(std::isfinite(value));
}

TEST_P(CpuAttention, NaNStaysInItsSequence) {
  const Sequences sequences{{5, 6, 7}, 2, 8, true};
  Floats qkv = sequences.values();
  const Floats before = sequences.attend(qkv);
  std::fill_n(qkv.begin() + 5 * 48, 6 * 48, std::nanf(""));
  const Floats after = sequences.attend(qkv);
  for (std::size_t i = 0; i < after.size(); ++i) {
    const bool ruined = i / 16 >= 5 && i / 16 < 11;
    EXPECT_EQ(std::isnan(after[i]), ruined) << i;
    if (!ruined) {
      EXPECT_EQ(after[i], before[i]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CpuAttention, testing::Values("avx2", "avx512"), [](const auto& each) { return std::string(each.param); });

TEST(CpuAttentionRefusal, NeedsTheInstructionsAndFloat32) {
  EXPECT_FALSE(cpu::attention_forward({}, {}).ok());
  ASSERT_TRUE(use_instruction_set("portable"));
  EXPECT_FALSE(cpu::has_attention());
  use_instruction_set("");
}

}  // namespace
}  // namespace tessera::kernels
