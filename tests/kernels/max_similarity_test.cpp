#include "kernels/max_similarity/max_similarity.h"

#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "kernels/cpu/instruction_set.h"
#include "tests/kernels/backend.h"

namespace tessera::kernels::test {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Inputs {
  MaxSimilarityProblem problem;
  std::vector<float> patches, tokens, grad_i2t, grad_t2i;
  std::vector<std::uint8_t> patch_keep, token_keep;
};

struct Results {
  std::vector<float> i2t, t2i, grad_patches, grad_tokens;
  std::vector<std::int32_t> best_token, best_patch;
};

// Whole numbers: products are exact, and equal ones are many.
Inputs random_inputs(const MaxSimilarityProblem& problem, bool drops, bool whole_numbers = false) {
  std::mt19937 generator(static_cast<unsigned>(problem.patches * 31 + problem.tokens));
  std::normal_distribution<float> normal;
  const auto numbers = [&](std::int64_t count) {
    std::vector<float> values(count);
    for (float& value : values)
      value = whole_numbers ? static_cast<float>(static_cast<int>(generator() % 3) - 1) : normal(generator);
    return values;
  };
  const auto keeps = [&](std::int64_t count) {
    std::vector<std::uint8_t> keep(count);
    for (std::uint8_t& k : keep) k = !drops || generator() % 4 != 0;
    return keep;
  };
  Inputs inputs{problem,
                numbers(problem.images * problem.patches * problem.width),
                numbers(problem.texts * problem.tokens * problem.width),
                numbers(problem.images * problem.texts),
                numbers(problem.images * problem.texts),
                keeps(problem.images * problem.patches),
                keeps(problem.texts * problem.tokens)};
  for (std::int64_t b = 0; b < problem.images; ++b) inputs.patch_keep[b * problem.patches] = 1;
  return inputs;
}

// The definition, number by number, in double.
struct Definition {
  std::vector<double> i2t, t2i, grad_patches, grad_tokens;
  std::vector<std::int32_t> best_token, best_patch;

  explicit Definition(const Inputs& in) {
    const auto [images, patches, texts, tokens, width] = in.problem;
    i2t.resize(images * texts);
    t2i.resize(images * texts);
    best_token.resize(images * texts * patches);
    best_patch.resize(images * texts * tokens);
    grad_patches.resize(in.patches.size());
    grad_tokens.resize(in.tokens.size());
    for (std::int64_t b = 0; b < images; ++b) {
      for (std::int64_t c = 0; c < texts; ++c) add_pair(in, b, c);
    }
  }

 private:
  void add_pair(const Inputs& in, std::int64_t b, std::int64_t c) {
    const auto [images, patches, texts, tokens, width] = in.problem;
    const auto product = [&, d = width](std::int64_t p, std::int64_t r) {
      double sum = 0;
      for (std::int64_t i = 0; i < d; ++i) sum += double{in.patches[p * d + i]} * in.tokens[r * d + i];
      return sum;
    };
    const auto add = [&, d = width](std::int64_t p, std::int64_t r, double weight) {
      for (std::int64_t i = 0; i < d; ++i) {
        grad_patches[p * d + i] += weight * in.tokens[r * d + i];
        grad_tokens[r * d + i] += weight * in.patches[p * d + i];
      }
    };
    std::vector<std::int64_t> kept_patches, kept_tokens;
    for (std::int64_t p = b * patches; p < (b + 1) * patches; ++p)
      if (in.patch_keep[p] != 0) kept_patches.push_back(p);
    for (std::int64_t r = c * tokens; r < (c + 1) * tokens; ++r)
      if (in.token_keep[r] != 0) kept_tokens.push_back(r);
    if (kept_tokens.empty()) return;
    const std::int64_t place = b * texts + c;
    for (const std::int64_t p : kept_patches) {
      std::int64_t best = kept_tokens.front();
      for (const std::int64_t r : kept_tokens)
        if (product(p, r) > product(p, best)) best = r;
      i2t[place] += product(p, best) / static_cast<double>(kept_patches.size());
      best_token[place * patches + p % patches] = static_cast<std::int32_t>(best % tokens);
      add(p, best, in.grad_i2t[place] / static_cast<double>(kept_patches.size()));
    }
    for (const std::int64_t r : kept_tokens) {
      std::int64_t best = kept_patches.front();
      for (const std::int64_t p : kept_patches)
        if (product(p, r) > product(best, r)) best = p;
      t2i[place] += product(best, r) / static_cast<double>(kept_tokens.size());
      best_patch[place * tokens + r % tokens] = static_cast<std::int32_t>(best % patches);
      add(best, r, in.grad_t2i[place] / static_cast<double>(kept_tokens.size()));
    }
  }
};

Results run(const Inputs& in, int threads = 2) {
  const auto [images, patches, texts, tokens, width] = in.problem;
  Parallel parallel;
  parallel.threads = threads;
  Results out;
  out.i2t.assign(images * texts, kNaN);
  out.t2i.assign(images * texts, kNaN);
  out.best_token.assign(images * texts * patches, -1);
  out.best_patch.assign(images * texts * tokens, -1);
  out.grad_patches.assign(in.patches.size(), kNaN);
  out.grad_tokens.assign(in.tokens.size(), kNaN);
  const Status forward = cpu::max_similarity_forward(
      {in.problem, in.patches.data(), in.tokens.data(), in.patch_keep.data(), in.token_keep.data(), out.i2t.data(),
       out.t2i.data(), out.best_token.data(), out.best_patch.data()},
      parallel);
  EXPECT_TRUE(forward.ok()) << forward.message();
  const Status backward = cpu::max_similarity_backward(
      {in.problem, in.patches.data(), in.tokens.data(), in.patch_keep.data(), in.token_keep.data(),
       out.best_token.data(), out.best_patch.data(), in.grad_i2t.data(), in.grad_t2i.data(), out.grad_patches.data(),
       out.grad_tokens.data()},
      parallel);
  EXPECT_TRUE(backward.ok()) << backward.message();
  return out;
}

void expect_as_defined(const Inputs& inputs) {
  const Results ours = run(inputs);
  const Definition theirs(inputs);
  expect_close("i2t", ours.i2t, theirs.i2t, 1e-5);
  expect_close("t2i", ours.t2i, theirs.t2i, 1e-5);
  EXPECT_EQ(ours.best_token, theirs.best_token);
  EXPECT_EQ(ours.best_patch, theirs.best_patch);
  expect_close("grad_patches", ours.grad_patches, theirs.grad_patches, 1e-5);
  expect_close("grad_tokens", ours.grad_tokens, theirs.grad_tokens, 1e-5);
}

class MaxSimilarity : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!use_instruction_set(GetParam().c_str())) GTEST_SKIP() << "this machine has no " << GetParam();
  }
  void TearDown() override { use_instruction_set(""); }
};
INSTANTIATE_TEST_SUITE_P(On, MaxSimilarity, testing::Values("portable", "avx2", "avx512"),
                         [](const auto& each) { return each.param; });

TEST_P(MaxSimilarity, EqualsTheDefinitionAtManyShapes) {
  const MaxSimilarityProblem problems[] = {{1, 1, 1, 1, 1},      {2, 7, 3, 5, 8},   {3, 16, 2, 4, 24},
                                           {2, 33, 3, 17, 5},    {1, 49, 4, 1, 16}, {2, 64, 2, 15, 40},
                                           {1, 197, 2, 29, 130}, {2, 3, 5, 80, 8}};
  for (const MaxSimilarityProblem& problem : problems) {
    SCOPED_TRACE(testing::Message() << problem.patches << " patches, " << problem.tokens << " tokens, width "
                                    << problem.width);
    expect_as_defined(random_inputs(problem, false));
    expect_as_defined(random_inputs(problem, true));
  }
}

TEST_P(MaxSimilarity, TheFirstOfEqualMaximaIsChosen) {
  expect_as_defined(random_inputs({2, 40, 3, 12, 4}, true, /*whole_numbers=*/true));
}

TEST_P(MaxSimilarity, WhatIsNotKeptIsNeverRead) {
  const Inputs plain = random_inputs({3, 21, 4, 9, 8}, true);
  Inputs filled = plain;
  for (std::size_t i = 0; i < filled.patches.size(); ++i)
    if (plain.patch_keep[i / 8] == 0) filled.patches[i] = kNaN;
  for (std::size_t i = 0; i < filled.tokens.size(); ++i)
    if (plain.token_keep[i / 8] == 0) filled.tokens[i] = kNaN;
  const Results expected = run(plain), ours = run(filled);
  EXPECT_EQ(ours.i2t, expected.i2t);
  EXPECT_EQ(ours.t2i, expected.t2i);
  EXPECT_EQ(ours.grad_patches, expected.grad_patches);
  EXPECT_EQ(ours.grad_tokens, expected.grad_tokens);
  for (std::size_t i = 0; i < ours.grad_tokens.size(); ++i) {
    if (plain.token_keep[i / 8] == 0) {
      EXPECT_EQ(ours.grad_tokens[i], 0.0f);
    }
  }
}

TEST_P(MaxSimilarity, ATextWithoutTokensHasSimilarityZeroAndPassesNoGradient) {
  Inputs inputs = random_inputs({2, 6, 3, 4, 8}, true);
  for (int r = 4; r < 8; ++r) inputs.token_keep[r] = 0;
  expect_as_defined(inputs);
  const Results ours = run(inputs);
  EXPECT_EQ(ours.i2t[1], 0.0f);
  EXPECT_EQ(ours.t2i[1], 0.0f);
}

TEST_P(MaxSimilarity, ANaNThatIsKeptMakesItsPairsNaN) {
  const Inputs plain = random_inputs({2, 20, 3, 5, 8}, false);
  Inputs in_image = plain, in_text = plain;
  in_image.patches[3 * 8] = kNaN;              // image 0
  in_text.tokens[(1 * 5 + 2) * 8 + 4] = kNaN;  // text 1
  const Results of_image = run(in_image), of_text = run(in_text);
  for (int b = 0; b < 2; ++b) {
    for (int c = 0; c < 3; ++c) {
      const int pair = b * 3 + c;
      EXPECT_EQ(std::isnan(of_image.i2t[pair]), b == 0);
      EXPECT_EQ(std::isnan(of_image.t2i[pair]), b == 0);
      EXPECT_EQ(std::isnan(of_text.i2t[pair]), c == 1);
      EXPECT_EQ(std::isnan(of_text.t2i[pair]), c == 1);
    }
  }
}

TEST_P(MaxSimilarity, ThreadsChangeNothing) {
  const Inputs inputs = random_inputs({5, 19, 7, 6, 16}, true);
  const Results expected = run(inputs, 1);
  for (const int threads : {2, 3, 16}) {
    const Results ours = run(inputs, threads);
    EXPECT_EQ(ours.i2t, expected.i2t);
    EXPECT_EQ(ours.grad_patches, expected.grad_patches);
    EXPECT_EQ(ours.grad_tokens, expected.grad_tokens);
  }
}

TEST(MaxSimilarityArguments, EmptyBatchesAreFineAndMistakesAreNamed) {
  EXPECT_TRUE(cpu::max_similarity_forward({{0, 3, 4, 5, 6}, {}, {}, {}, {}, {}, {}, {}, {}}).ok());
  EXPECT_TRUE(cpu::max_similarity_backward({{2, 3, 0, 5, 6}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}).ok());
  EXPECT_EQ(cpu::max_similarity_forward({{1, 0, 1, 1, 1}, {}, {}, {}, {}, {}, {}, {}, {}}).message(),
            "max_similarity: patches must be at least 1, but is 0");
  EXPECT_EQ(cpu::max_similarity_forward({{1, 1, 1, 1, 1}, {}, {}, {}, {}, {}, {}, {}, {}}).message(),
            "max_similarity: patches is a null pointer");
}

}  // namespace
}  // namespace tessera::kernels::test
