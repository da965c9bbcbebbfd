#include <cmath>

#include <gtest/gtest.h>

#include <tessera/evaluation/metrics/cider.h>

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

// Computed by hand for two images. "a" is in references of both, so its weight is 0; all other n-grams have the weight log 2,
// also those in no reference. Caption 0 is "a red square". Its unigrams with weight are red and square; the reference has red,
// circle, on and grass. Its bigrams are "a red" and "red square"; the reference has "a red", "red circle", "circle on" and
// "on grass". They share no trigram.
TEST(CiderD, MatchesTheDefinition) {
  const double unigrams = 1 / (std::sqrt(2.0) * std::sqrt(4.0)), bigrams = 1 / (std::sqrt(2.0) * std::sqrt(4.0));
  const double penalty = std::exp(-4.0 / 72);  // 3 and 5 words
  const CiderScores scores = cider_d({"a red square", "the square the square"}, {kRed, kBlue});
  EXPECT_NEAR(scores.per_image[0], 10 * penalty * (unigrams + bigrams) / 4, 1e-12);

  // Caption 1 has the unigrams the (2) and square (2), the bigrams "the square" (2) and "square the", and two trigrams and a
  // 4-gram that no reference has. It shares square with "a blue square", counted once, as there; the unigrams with weight there
  // are blue and square. They share no bigram. The lengths are 4 and 3 words.
  const double first = std::exp(-1.0 / 72) * 1 / (std::sqrt(8.0) * std::sqrt(2.0));
  // It shares the and square with "the blue square there", which has four words.
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
