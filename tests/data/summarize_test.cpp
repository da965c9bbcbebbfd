#include <gtest/gtest.h>

#include "src/data/packing/pack_sample.h"

namespace tessera {
namespace {

TEST(Summarize, PicksTheSentenceWithTheMostFrequentWords) {
  EXPECT_EQ(summarize({"Copyright by somebody. A brown horse on a meadow.", "The horse eats.", "A horse on a meadow"}),
            "A horse on a meadow");
  EXPECT_EQ(summarize({"one word after another. Nothing twice here."}), "one word after another")
      << "ties go to the first sentence";
}

TEST(Summarize, LeavesOutBracketsLinksAndTags) {
  EXPECT_EQ(summarize({"Sunset (photo by Ann) at the beach [2019] https://example.org/a.jpg #sunset @ann"}),
            "Sunset at the beach");
  EXPECT_EQ(summarize({"A smile :( in the rain"}), "A smile :( in the rain") << "an unmatched bracket must stay";
}

TEST(Summarize, EndsAtACommaOrAtTheMaximumNumberOfWords) {
  EXPECT_EQ(summarize({"a dog runs over the long wet beach, chasing three white birds and barking loudly"}),
            "a dog runs over the long wet beach");
  EXPECT_EQ(summarize({"a dog runs over the long wet beach"}, 4), "a dog runs over");
  EXPECT_EQ(summarize({"dogs, cats and seven other animals that live here"}, 6), "dogs, cats and seven other animals")
      << "a comma in the first half cuts too much";
}

TEST(Summarize, KeepsWordsOfOtherScripts) {
  EXPECT_EQ(summarize({"ein großer Bär."}), "ein großer Bär");
  EXPECT_EQ(summarize({"犬 走る"}), "犬 走る");
}

TEST(Summarize, IsEmptyWithoutWords) {
  for (const char* caption : {"", "  ", "...", "(all of it)", "#tag", "\n\n"})
    EXPECT_EQ(summarize({caption}), "") << caption;
  EXPECT_EQ(summarize({}), "");
}

}  // namespace
}  // namespace tessera
