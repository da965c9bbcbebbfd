#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/evaluation/metrics/slots.h"
#include "tests/support/gradcheck.h"
#include <tessera/base/error.h>

namespace tessera::metrics {
namespace {

constexpr std::int64_t kSlots = 5, kWidth = 4, kClasses = 3;

at::Tensor normal(at::IntArrayRef sizes, std::uint64_t seed) {
  return at::randn(sizes, at::make_generator<at::CPUGeneratorImpl>(seed), at::kDouble);
}

std::vector<std::int64_t> whole(const at::Tensor& t) {
  return {t.const_data_ptr<std::int64_t>(), t.const_data_ptr<std::int64_t>() + t.numel()};
}

double cosine(const at::Tensor& a, const at::Tensor& b) {
  return (a.dot(b) / (a.norm() * b.norm())).item<double>();
}

TEST(SlotEmbeddings, ProductIsTheMeanCosineOfTheSlots) {
  const at::Tensor slots = normal({2, kSlots, kWidth}, 1);
  double mean = 0, of_chosen = 0;
  for (std::int64_t l = 0; l < kSlots; ++l) mean += cosine(slots[0][l], slots[1][l]) / kSlots;
  for (const std::int64_t l : {4, 1}) of_chosen += cosine(slots[0][l], slots[1][l]) / 2;
  const auto product = [](const at::Tensor& rows) { return rows[0].dot(rows[1]).item<double>(); };
  EXPECT_NEAR(product(slot_embeddings(slots)), mean, 1e-12);
  EXPECT_NEAR(product(slot_embeddings(slots, at::tensor({4, 1}, at::kLong))), of_chosen, 1e-12);
}

/// Returns the zero-shot accuracy of each slot, computed with plain loops.
std::vector<double> by_hand(const at::Tensor& images, const at::Tensor& prompts,
                            const std::vector<std::int64_t>& labels) {
  std::vector<double> accuracy(static_cast<std::size_t>(images.size(1)), 0);
  double labeled = 0;
  for (const std::int64_t label : labels) labeled += label >= 0 ? 1 : 0;
  for (std::int64_t l = 0; l < images.size(1); ++l) {
    for (std::int64_t n = 0; n < images.size(0); ++n) {
      std::int64_t best = 0;
      double greatest = -2;
      for (std::int64_t c = 0; c < prompts.size(0); ++c) {
        at::Tensor mean = at::zeros({images.size(2)}, at::kDouble);
        for (std::int64_t t = 0; t < prompts.size(1); ++t) mean = mean + prompts[c][t][l] / prompts[c][t][l].norm();
        if (const double value = cosine(images[n][l], mean); value > greatest + 1e-12) {
          greatest = value;
          best = c;
        }
      }
      if (best == labels[static_cast<std::size_t>(n)]) accuracy[static_cast<std::size_t>(l)] += 1 / labeled;
    }
  }
  return accuracy;
}

class SlotSelection : public ::testing::Test {
 protected:
  at::Tensor images = normal({12, kSlots, kWidth}, 3);
  at::Tensor prompts = normal({kClasses, 2, kSlots, kWidth}, 4);
  std::vector<std::int64_t> labels = {0, 1, 2, 0, 1, 2, -1, 1, 2, 0, 1, -1};

  at::Tensor accuracy(const at::Tensor& slots, const at::Tensor& texts, std::int64_t batch = 12) const {
    SlotMeter meter(class_slots(texts));
    for (std::int64_t first = 0; first < 12; first += batch)
      meter.add(slots.narrow(0, first, batch), at::tensor(labels, at::kLong).narrow(0, first, batch));
    return meter.accuracy();
  }
};

TEST_F(SlotSelection, MatchesPlainLoopsForEachSlot) {
  const std::vector<double> expected = by_hand(images, prompts, labels);
  const at::Tensor found = accuracy(images, prompts);
  for (std::int64_t l = 0; l < kSlots; ++l)
    EXPECT_NEAR(found[l].item<double>(), expected[static_cast<std::size_t>(l)], 1e-12) << "slot " << l;
  EXPECT_GT(found.max().item<double>(), found.min().item<double>()) << "otherwise this test checks nothing";
}

TEST_F(SlotSelection, BatchesAddUpToTheWhole) {
  EXPECT_TRUE(at::equal(accuracy(images, prompts, 3), accuracy(images, prompts)));
}

TEST_F(SlotSelection, PermutedSlotsPermuteTheAccuracies) {
  const at::Tensor order = at::tensor({3, 0, 4, 2, 1}, at::kLong);
  EXPECT_TRUE(at::equal(accuracy(images.index_select(1, order), prompts.index_select(2, order)),
                        accuracy(images, prompts).index_select(0, order)));
}

TEST_F(SlotSelection, PrefersTheLowerOfEqualSlots) {
  const at::Tensor equal = at::tensor({0.25, 0.5, 0.25, 0.5, 0.5}, at::kDouble);
  EXPECT_EQ(whole(best_slots(equal, 4)), (std::vector<std::int64_t>{1, 3, 4, 0}));
  EXPECT_THROW(best_slots(equal, 6), c10::Error);
  EXPECT_THROW(best_slots(equal, 0), c10::Error);
}

TEST_F(SlotSelection, PrefersTheLowerOfEqualClasses) {
  prompts = normal({1, 1, kSlots, kWidth}, 4).expand({kClasses, 2, kSlots, kWidth});
  labels.assign(12, 0);
  EXPECT_EQ(accuracy(images, prompts).min().item<double>(), 1.0);
  labels.assign(12, 1);
  EXPECT_EQ(accuracy(images, prompts).max().item<double>(), 0.0);
}

TEST_F(SlotSelection, NanSlotIsNeverRight) {
  images.select(1, 2).fill_(std::numeric_limits<double>::quiet_NaN());
  labels.assign(12, 0);
  const at::Tensor found = accuracy(images, prompts);
  EXPECT_EQ(found[2].item<double>(), 0.0);
  EXPECT_TRUE(found.isfinite().all().item<bool>());
}

TEST_F(SlotSelection, RejectsLabelsBeyondTheClasses) {
  labels[0] = kClasses;
  EXPECT_THROW(accuracy(images, prompts), c10::Error);
}

class SlotMaskTest : public ::testing::Test {
 protected:
  static constexpr std::int64_t kPairs = 9;
  at::Tensor image = normal({kPairs, kSlots* kWidth}, 5);
  at::Tensor positive = normal({kPairs, kSlots* kWidth}, 6) + 0.3 * image;
  at::Tensor negative = normal({kPairs, kSlots* kWidth}, 7) + 0.3 * image;

  MaskPairs pairs(std::int64_t parts) const { return mask_pairs(image, positive, negative, parts); }
};

TEST_F(SlotMaskTest, LogitsAreScaledCosinesOfTheMaskedImage) {
  const SlotMask mask{0.05 * normal({kSlots}, 8), at::scalar_tensor(5.0, at::kDouble)};  // the scale exp(5) = 148 is not clamped to 100
  const double scale = std::exp(5.0);
  const SlotMaskScores scores = slot_mask_scores(mask, pairs(kSlots));
  const at::Tensor weights = (scale * mask.theta / 4).sigmoid().repeat_interleave(kWidth);
  double loss = 0;
  for (std::int64_t n = 0; n < kPairs; ++n) {
    const double right = scale * cosine(weights * image[n], positive[n]);
    const double wrong = scale * cosine(weights * image[n], negative[n]);
    EXPECT_NEAR(scores.logits[n][0].item<double>(), right, 1e-9);
    EXPECT_NEAR(scores.logits[n][1].item<double>(), wrong, 1e-9);
    loss += std::log1p(std::exp(wrong - right)) / kPairs;
  }
  EXPECT_NEAR(scores.loss.item<double>(), loss, 1e-9);
}

TEST_F(SlotMaskTest, GradientsMatchFiniteDifferences) {
  for (const double alpha : {2.6, 5.0})
    for (const std::int64_t parts : {kSlots, kSlots * kWidth}) {
      SCOPED_TRACE(concat("alpha ", alpha, ", ", parts, " parts"));
      const SlotMask mask{(0.02 * normal({parts}, 9)).requires_grad_(),
                          at::scalar_tensor(alpha, at::kDouble).requires_grad_()};
      const MaskPairs known = pairs(parts);
      expect_gradients_match(
          {mask.theta, mask.alpha}, [&] { return slot_mask_scores(mask, known).loss; }, 1e-5);
    }
}

TEST_F(SlotMaskTest, EqualWeightsKeepTheCosines) {
  const SlotMaskScores scores = slot_mask_scores(SlotMask::start(kSlots), pairs(kSlots));
  EXPECT_NEAR(scores.logits[0][0].item<double>(), 100 * cosine(image[0], positive[0]), 1e-9);
}

TEST_F(SlotMaskTest, EqualWeightsWithinEachSlotMatchAMaskOfSlots) {
  const at::Tensor theta = 0.02 * normal({kSlots}, 10), alpha = at::scalar_tensor(0.0, at::kDouble);
  const at::Tensor by_slot = slot_mask_scores({theta, alpha}, pairs(kSlots)).logits;
  const at::Tensor by_dimension =
      slot_mask_scores({theta.repeat_interleave(kWidth), alpha}, pairs(kSlots * kWidth)).logits;
  EXPECT_TRUE(at::allclose(by_slot, by_dimension, 1e-12, 1e-12));
}

TEST_F(SlotMaskTest, TrainingFindsTheSlotThatDistinguishesTheCaptions) {
  // Only slot 3 is nearer to the right caption than to the wrong one.
  image = at::ones({kPairs, kSlots * kWidth}, at::kDouble);
  positive = image.clone();
  negative = image.clone();
  positive.narrow(1, 0, 3 * kWidth).mul_(-0.2);
  negative.narrow(1, 3 * kWidth, kWidth).mul_(-1);
  const MaskPairs known = pairs(kSlots);
  const SlotMaskTraining trained = train_slot_mask(SlotMask::start(kSlots), known, 50);
  const auto right = [&](const SlotMask& mask) {
    const at::Tensor logits = slot_mask_scores(mask, known).logits;
    return logits.select(1, 0).gt(logits.select(1, 1)).sum().item<std::int64_t>();
  };
  EXPECT_EQ(right(SlotMask::start(kSlots)), 0);
  EXPECT_EQ(right(trained.best), kPairs);
  EXPECT_EQ(trained.best.weights().argmax().item<std::int64_t>(), 3);
  EXPECT_LT(trained.losses[-1].item<double>(), trained.losses[0].item<double>());
}

TEST_F(SlotMaskTest, KeepsTheStartIfTrainingDoesNotImproveIt) {
  // The initial mask already classifies all pairs right, so no later mask is better.
  const at::Tensor wrong = -image;
  const SlotMaskTraining trained = train_slot_mask(SlotMask::start(kSlots), mask_pairs(image, image, wrong, kSlots), 3);
  EXPECT_EQ(trained.best.theta.abs().max().item<double>(), 0.0);
}

TEST_F(SlotMaskTest, RejectsShapesThatDoNotMatch) {
  EXPECT_THROW(pairs(3), c10::Error);  // 20 dimensions do not divide into 3 parts
  EXPECT_THROW(mask_pairs(image, positive.narrow(0, 0, 2), negative, kSlots), c10::Error);
  EXPECT_THROW(slot_mask_scores(SlotMask::start(4), pairs(kSlots)), c10::Error);
}

}  // namespace
}  // namespace tessera::metrics
