#include <cmath>

#include <gtest/gtest.h>

#include <tessera/evaluation/metrics/cider.h>

namespace tessera::metrics {
namespace {

using Texts = std::vector<std::string>;

const Texts kRed = {"a red circle on grass"}, kBlue = {"a blue square", "the blue square there"};

TEST(CiderD, OfACaptionThatIsTheReferenceIsTen) {
  const CiderScores scores = cider_d({"A red circle, on grass!", "a dog"}, {kRed, kBlue});
  EXPECT_NEAR(scores.per_image[0], 10, 1e-12);
  EXPECT_EQ(scores.per_image.size(), 2u);
  EXPECT_NEAR(scores.mean, (scores.per_image[0] + scores.per_image[1]) / 2, 1e-12);
}

TEST(CiderD, WithoutACommonNGramIsZero) {
  EXPECT_EQ(cider_d({"green triangle", ""}, {kRed, kBlue}).mean, 0);
  EXPECT_EQ(cider_d({"anything"}, {{}}).mean, 0) << "no reference";
}

// By hand. Of two images: "a" is in references of both and weighs 0; all other n-grams of the references weigh log 2, those
// of no reference too. Caption 0 "a red square": unigrams red, square, of which the reference has red, with circle, on, grass;
// bigrams "a red", "red square", of the reference "a red", "red circle", "circle on", "on grass"; no common trigram.
TEST(CiderD, IsTheDefinition) {
  const double unigrams = 1 / (std::sqrt(2.0) * std::sqrt(4.0)), bigrams = 1 / (std::sqrt(2.0) * std::sqrt(4.0));
  const double penalty = std::exp(-4.0 / 72);  // 3 and 5 words
  const CiderScores scores = cider_d({"a red square", "the square the square"}, {kRed, kBlue});
  EXPECT_NEAR(scores.per_image[0], 10 * penalty * (unigrams + bigrams) / 4, 1e-12);

  // Caption 1: the (2), square (2); "the square" (2), "square the"; two trigrams and a 4-gram that no reference has.
  // Against "a blue square": square, at most as often as there; "blue", "square". No common bigram. 4 and 3 words.
  const double first = std::exp(-1.0 / 72) * 1 / (std::sqrt(8.0) * std::sqrt(2.0));
  // Against "the blue square there": the and square, of four words.
  const double second = 2 / (std::sqrt(8.0) * std::sqrt(4.0));
  EXPECT_NEAR(scores.per_image[1], 10 * (first + second) / 4 / 2, 1e-12);
}

TEST(CiderD, WordsThatAllImagesHaveWeighNothing) {
  EXPECT_EQ(cider_d({"a", "a"}, {kRed, {"a blue square"}}).mean, 0);
  EXPECT_EQ(cider_d(kRed, {kRed}).mean, 0) << "one image: every word is in all";
}

TEST(CiderD, FewerAndMoreWordsThanTheReferenceCostTheSame) {
  const std::vector<Texts> references = {{"one two three four"}, {"five"}};
  const double more = cider_d({"one two three four five six", ""}, references, 1).per_image[0],
               wide = cider_d({"one two three four five six", ""}, references, 1e9).per_image[0];
  EXPECT_NEAR(more, wide * std::exp(-2.0), 1e-12);
  EXPECT_THROW(cider_d({"one"}, references), c10::Error);
}

}  // namespace
}  // namespace tessera::metrics
