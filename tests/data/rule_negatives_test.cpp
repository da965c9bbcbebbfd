// Tests hard negatives that rules generate from captions.

#include <map>
#include <set>

#include <gtest/gtest.h>

#include "src/data/packing/rule_negatives.h"
#include "tests/data/fake_source.h"

namespace tessera {
namespace {

using Variants = std::set<std::string>;

// Returns all hard negatives that the rules can generate from a caption, by kind.
std::map<std::string, Variants> all_of(const NegativeRules& rules, const std::string& caption) {
  Random random(1, Purpose::negatives);
  std::map<std::string, Variants> out;
  for (const HardNegative& negative : rules.make(caption, 1000, random)) out[negative.kind].insert(negative.caption);
  return out;
}

const NegativeRules& small_rules() {
  static const NegativeRules rules(
      "# remark\natt color: red | orange | blue\natt size: small, tiny | big\n\nobj animal: dog, puppy | cat | fox\n"
      "obj person: man/men | woman/women\nrel depth: in front of | behind\n",
      "test");
  return rules;
}

TEST(NegativeRules, SwapDifferentAttributesOfOneClass) {
  EXPECT_EQ(all_of(small_rules(), "A red dog and a blue cat.")["swap_att"], Variants{"A blue dog and a red cat."});
  EXPECT_EQ(all_of(small_rules(), "An orange dog, a blue cat")["swap_att"], Variants{"A blue dog, an orange cat"});
  EXPECT_EQ(all_of(small_rules(), "Red dog beside blue cat")["swap_att"], Variants{"Blue dog beside red cat"});
  for (const char* same : {"a red and blue dog", "a red, small and blue dog", "a red dog and a red cat",
                           "a red dog and a small cat", "a small dog and a tiny cat"})
    EXPECT_TRUE(all_of(small_rules(), same)["swap_att"].empty()) << same;
}

TEST(NegativeRules, SwapNounsOnlyIfTheMeaningChanges) {
  EXPECT_EQ(all_of(small_rules(), "a dog chases two cats")["swap_obj"], Variants{"a cat chases two dogs"});
  EXPECT_EQ(all_of(small_rules(), "a red dog and a cat")["swap_obj"], Variants{"a red cat and a dog"});
  EXPECT_EQ(all_of(small_rules(), "A man sees women")["swap_obj"], Variants{"A woman sees men"});
  for (const char* same :
       {"a dog and a cat", "a picture of dogs and cats", "the dog with the cat", "a dog sees a puppy"})
    EXPECT_TRUE(all_of(small_rules(), same)["swap_obj"].empty()) << same;
}

TEST(NegativeRules, ReplaceWordsByIncompatibleOnes) {
  const auto made = all_of(small_rules(), "A tiny dog is in front of the Woman");
  EXPECT_EQ(made.at("replace_att"), Variants{"A big dog is in front of the Woman"});
  EXPECT_EQ(made.at("replace_obj"),
            (Variants{"A tiny cat is in front of the Woman", "A tiny fox is in front of the Woman",
                      "A tiny dog is in front of the Man"}));
  EXPECT_EQ(made.at("replace_rel"), Variants{"A tiny dog is behind the Woman"});
  EXPECT_EQ(all_of(small_rules(), "behind dogs").at("replace_rel"), Variants{"in front of dogs"});
  EXPECT_EQ(all_of(small_rules(), "foxes").at("replace_obj"), (Variants{"dogs", "puppies", "cats"}));
  EXPECT_EQ(all_of(small_rules(), "a blue thing").at("replace_att"), (Variants{"a red thing", "an orange thing"}));
  EXPECT_TRUE(all_of(small_rules(), "in front, of a bus. Infrared").empty());
  EXPECT_TRUE(all_of(small_rules(), "").empty());
}

TEST(NegativeRules, LimitEachKindAndDependOnlyOnTheSeed) {
  const NegativeRules rules(default_negative_lexicon(), "built in");
  const std::string caption = "A young man in a red shirt rides a brown horse next to two white dogs";
  const auto made = [&](std::uint64_t seed) {
    Random random(seed, Purpose::negatives);
    return rules.make(caption, 2, random);
  };
  std::map<std::string, int> kinds;
  Variants different;
  for (const HardNegative& negative : made(1)) {
    ++kinds[negative.kind];
    EXPECT_NE(negative.caption, caption);
    EXPECT_TRUE(different.insert(negative.caption).second);
  }
  EXPECT_EQ(kinds, (std::map<std::string, int>{
                       {"swap_att", 2}, {"swap_obj", 2}, {"replace_att", 2}, {"replace_obj", 2}, {"replace_rel", 1}}));
  const auto captions = [&](std::uint64_t seed) {
    std::vector<std::string> out;
    for (const HardNegative& negative : made(seed)) out.push_back(negative.caption);
    return out;
  };
  EXPECT_EQ(captions(1), captions(1));
  EXPECT_NE(captions(1), captions(2));
}

TEST(NegativeRules, MistakesInALexiconAreReportedWithTheirLine) {
  const auto error = [](const std::string& text) {
    return error_of([&] { NegativeRules(text, "words.txt"); });
  };
  EXPECT_EQ(
      error("att color: red | blue\nnoun a: x | y\n"),
      "words.txt:2: expected a line such as `att size: small, tiny | large, big`, with the kind att, obj or rel, got "
      "noun a: x | y");
  EXPECT_EQ(error("att color: red, blue"),
            "words.txt:1: the class color has nothing to choose from: put | between its words");
  EXPECT_EQ(error("att color: red | , blue"), "words.txt:1: there is no word before or after a comma or |");
  EXPECT_EQ(error("# nothing\n"), "words.txt: holds no words");
}

}  // namespace
}  // namespace tessera
