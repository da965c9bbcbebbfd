#include <cmath>

#include <gtest/gtest.h>

#include "src/evaluation/metrics/captions.h"

namespace tessera::metrics {
namespace {

using Texts = std::vector<std::string>;

const Texts kRed = {"a red circle on grass"}, kBlue = {"a blue square", "the blue square there"};

TEST(CiderD, IsTenForACaptionThatEqualsItsReference) {
  const CiderScores scores = cider_d({"A red circle, on grass!", "a dog"}, {kRed, kBlue});
  EXPECT_NEAR(scores.per_image[0], 10, 1e-12);
  EXPECT_EQ(scores.per_image.size(), 2u);
  EXPECT_NEAR(scores.mean, (scores.per_image[0] + scores.per_image[1]) / 2, 1e-12);
}

TEST(CiderD, IsZeroWithoutACommonNGram) {
  EXPECT_EQ(cider_d({"green triangle", ""}, {kRed, kBlue}).mean, 0);
  EXPECT_EQ(cider_d({"anything"}, {{}}).mean, 0) << "no reference";
}

// The expected scores are computed by hand for two images. Both images have references with "a", so the weight of "a" is 0. All other
// n-grams have the weight log 2, including those that no reference has. Caption 0 is "a red square". Its unigrams of nonzero weight are
// "red" and "square"; those of its reference are "red", "circle", "on" and "grass". Its bigrams are "a red" and "red square"; those of the
// reference are "a red", "red circle", "circle on" and "on grass". Caption and reference share no trigram.
TEST(CiderD, MatchesTheDefinition) {
  const double unigrams = 1 / (std::sqrt(2.0) * std::sqrt(4.0)), bigrams = 1 / (std::sqrt(2.0) * std::sqrt(4.0));
  const double penalty = std::exp(-4.0 / 72);  // the caption has 3 words, its reference 5
  const CiderScores scores = cider_d({"a red square", "the square the square"}, {kRed, kBlue});
  EXPECT_NEAR(scores.per_image[0], 10 * penalty * (unigrams + bigrams) / 4, 1e-12);

  // The unigrams of caption 1 are "the" and "square", each twice. Its bigrams are "the square", twice, and "square the". Its two trigrams
  // and its 4-gram are in no reference. The first reference is "a blue square". The unigrams of this reference that have nonzero weight are
  // "blue" and "square". Caption 1 shares one unigram with it, "square", and no bigram. The shared unigram counts once because the
  // reference has it once. The caption has 4 words, the reference 3.
  const double first = std::exp(-1.0 / 72) * 1 / (std::sqrt(8.0) * std::sqrt(2.0));
  // The second reference is "the blue square there". Caption 1 shares the unigrams "the" and "square" with this reference, but no bigram.
  // The caption and the reference have four words each.
  const double second = 2 / (std::sqrt(8.0) * std::sqrt(4.0));
  EXPECT_NEAR(scores.per_image[1], 10 * (first + second) / 4 / 2, 1e-12);
}

TEST(CiderD, GivesNoWeightToWordsThatAllImagesHave) {
  EXPECT_EQ(cider_d({"a", "a"}, {kRed, {"a blue square"}}).mean, 0);
  EXPECT_EQ(cider_d(kRed, {kRed}).mean, 0) << "with one image, all images have every word";
}

TEST(CiderD, PenalizesALengthDifferenceByAGaussian) {
  const std::vector<Texts> references = {{"one two three four"}, {"five"}};
  const double more = cider_d({"one two three four five six", ""}, references, 1).per_image[0],
               wide = cider_d({"one two three four five six", ""}, references, 1e9).per_image[0];
  EXPECT_NEAR(more, wide * std::exp(-2.0), 1e-12);
  EXPECT_THROW(cider_d({"one"}, references), c10::Error);
}

}  // namespace
}  // namespace tessera::metrics
