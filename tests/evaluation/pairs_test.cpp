#include <cmath>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/evaluation/metrics/pairs.h"

namespace tessera::metrics {
namespace {

std::vector<bool> flags(const at::Tensor& tensor) {
  std::vector<bool> out;
  for (std::int64_t i = 0; i < tensor.numel(); ++i) out.push_back(tensor[i].item<bool>());
  return out;
}

TEST(Pairs, FirstOptionIsRightOnlyIfGreaterThanAllOthers) {
  const at::Tensor scores = at::tensor({3.0, 2.0, 1.0, 2.0, 2.0, 1.0, 3.0, 1.0, NAN, 1.0, 0.0, 2.0}).view({4, 3});
  EXPECT_EQ(flags(first_is_best(scores)), (std::vector<bool>{true, false, false, false}));
  EXPECT_THROW(first_is_best(at::zeros({2, 1})), c10::Error);
}

TEST(Pairs, ParaphrasesNeedBothRightTexts) {
  const at::Tensor image = at::tensor({0.5, 0.4, 0.3, 0.5, 0.3, 0.3, 0.2, 0.5, 0.3}).view({3, 3});
  at::Tensor texts = at::zeros({3, 3, 3});
  const auto set = [&](std::int64_t n, double right, double first, double second) {
    texts[n][0][1] = right;
    texts[n][0][2] = first;
    texts[n][1][2] = second;
  };
  set(0, 0.5, 0.4, 0.4);
  set(1, 0.5, 0.5, 0.4);
  set(2, 0.5, 0.4, 0.6);
  const ParaphraseScores out = paraphrase(image, texts);
  EXPECT_EQ(flags(out.image_to_text), (std::vector<bool>{true, false, false}));
  EXPECT_EQ(flags(out.text_only), (std::vector<bool>{true, false, false}));
  EXPECT_THROW(paraphrase(image.narrow(1, 0, 2), texts), c10::Error);
}

TEST(Pairs, GroupIsRightIfAllItsMembersAre) {
  const at::Tensor right = at::tensor({1, 1, 0, 1, 0, 1}).to(at::kBool);
  const at::Tensor group = at::tensor({0, 2, 2, 0, -1, 3}, at::kLong);
  EXPECT_EQ(flags(all_right(right, group, 5)), (std::vector<bool>{true, true, false, true, true}));
  EXPECT_THROW(all_right(right, group.narrow(0, 0, 2), 5), c10::Error);
}

TEST(Pairs, AccuracyIsCountedByCategory) {
  const PairScores out =
      category_accuracy(at::tensor({1, 0, 1, 1}).to(at::kBool), at::tensor({0, 0, 2, 2}, at::kLong), 3);
  EXPECT_DOUBLE_EQ(out.accuracy, 0.75);
  EXPECT_TRUE(at::equal(out.category_accuracy, at::tensor({0.5, -1.0, 1.0}, at::kDouble)));
  EXPECT_DOUBLE_EQ(out.mean_category_accuracy, 0.75) << "a category without samples does not count";
  EXPECT_THROW(category_accuracy(at::ones({1}, at::kBool), at::tensor({3}, at::kLong), 3), c10::Error);
}

}  // namespace
}  // namespace tessera::metrics
