// Tests concept balance: matching of captions with a list of entries, counting, and the loader's choice of samples.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "src/data/loading/concept_balance.h"
#include "src/data/packing/count_concepts.h"
#include "tests/data/batches.h"
#include "tests/data/fake_source.h"
#include "tests/data/temporary_folder.h"
#include <tessera/base/random.h>
#include <tessera/base/text.h>
#include <tessera/data/loading/loader.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

using Found = std::vector<std::int32_t>;

TEST(ConceptMatcher, FindsEntriesBetweenSpacesAndPunctuation) {
  const ConceptMatcher matcher({"dog", "new york", "york", "new york city", "u.s.", "Dog", "hot dog stand"}, "list");
  const auto found = [&](const std::string& text) { return matcher.find({text}); };
  EXPECT_EQ(found("a dog."), (Found{0}));
  EXPECT_EQ(found("dogs and a hotdog"), Found{});
  EXPECT_EQ(found("Dog, dog"), (Found{0, 5})) << "case counts, and an entry counts once";
  EXPECT_EQ(found("new york city"), (Found{1, 2, 3}));
  EXPECT_EQ(found("new\tyork\nYork"), (Found{1, 2}));
  EXPECT_EQ(found("new, york"), (Found{2})) << "a comma is a word";
  EXPECT_EQ(found("made in the U.S. or u.s."), (Found{4}));
  EXPECT_EQ(found("hot dog"), (Found{0}));
  EXPECT_EQ(found(""), Found{});
  EXPECT_EQ(matcher.find({"new", "york"}), (Found{2})) << "an entry does not cross texts";
  EXPECT_EQ(matcher.find({"a dog", "york"}), (Found{0, 2}));
}

// MetaCLIP's own rule: the spaced entry is a substring of the spaced text.
bool spaced_contains(const std::string& text, const std::string& entry) {
  std::string spaced = " ";
  for (const char c : text) {
    if (std::string(",.;:?!`").find(c) != std::string::npos)
      spaced += {' ', c, ' '};
    else
      spaced += c == '\t' || c == '\n' || c == '\r' ? ' ' : c;
  }
  return (spaced + " ").find(" " + entry + " ") != std::string::npos;
}

TEST(ConceptMatcher, AgreesWithSubstringsOfSpacedTexts) {
  Random random(1, Purpose::caption);
  const auto words = [&](std::int64_t count, bool punctuation) {
    std::string out;
    for (std::int64_t i = 0; i < count; ++i) {
      out += (i > 0 ? " " : "") + std::string(1, static_cast<char>('a' + random.below(5))) + (random.chance(0.3) ? "b" : "");
      if (punctuation && random.chance(0.2)) out += random.pick(std::vector<std::string>{",", ".", "!", "-", "'"});
    }
    return out;
  };
  std::set<std::string> distinct;
  while (distinct.size() < 200) distinct.insert(words(1 + random.below(4), false));
  const std::vector<std::string> entries(distinct.begin(), distinct.end());
  const ConceptMatcher matcher(entries, "list");
  std::size_t total = 0;
  for (int i = 0; i < 500; ++i) {
    const std::string text = words(random.below(12), true);
    Found expected;
    for (std::size_t e = 0; e < entries.size(); ++e)
      if (spaced_contains(text, entries[e])) expected.push_back(static_cast<std::int32_t>(e));
    EXPECT_EQ(matcher.find({text}), expected) << text;
    total += expected.size();
  }
  EXPECT_GT(total, 1000U);
}

TEST(ConceptMatcher, RefusesEntriesThatCannotBeToldApart) {
  EXPECT_EQ(error_of([] { ConceptMatcher({"a", " "}, "list.txt"); }), "list.txt: entry 2 has no words");
  EXPECT_EQ(error_of([] { ConceptMatcher({"new york", "a", "new  york"}, "list.txt"); }),
            "list.txt: entry 3, new  york, has the words of entry 1: leave one of them out");
}

TEST(ConceptCounts, KeepsASampleIfOneOfItsEntriesDoes) {
  const ConceptCounts counts{{"a", "b", "c", "never"}, {1000, 400, 10, 0}};
  EXPECT_DOUBLE_EQ(counts.keep_probability({}, 100), 0);
  EXPECT_DOUBLE_EQ(counts.keep_probability({0}, 100), 0.1);
  EXPECT_DOUBLE_EQ(counts.keep_probability({0, 1}, 100), 1 - 0.9 * 0.75);
  EXPECT_DOUBLE_EQ(counts.keep_probability({0, 2}, 100), 1);
  EXPECT_DOUBLE_EQ(counts.keep_probability({3}, 100), 1);
}

class ConceptFiles : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    io::write_file(folder_ / name, text);
    return folder_ / name;
  }
  TemporaryFolder folder_;
};

TEST_F(ConceptFiles, ListsAreLinesOrJson) {
  const std::vector<std::string> expected{"new york", "dog"};
  EXPECT_EQ(read_concepts(write("a.txt", "new york\n\n dog \n")), expected);
  EXPECT_EQ(read_concepts(write("a.json", "[\"new york\", \"dog\"]")), expected);
  EXPECT_TRUE(error_of([&] { read_concepts(write("b.json", "{\"dog\": 1}")); }).ends_with("b.json: expected a JSON list of texts"));
  EXPECT_TRUE(error_of([&] { read_concepts(write("empty.txt", "\n")); }).ends_with("empty.txt: has no entries"));
}

TEST_F(ConceptFiles, CountsAreReadBackAndErrorsNameTheLine) {
  const std::string path = folder_ / "counts.tsv";
  write_concept_counts(path, {{"new york", "dog"}, {20'000'000'000, 0}});
  const ConceptCounts read = read_concept_counts(path);
  EXPECT_EQ(read.entries, (std::vector<std::string>{"new york", "dog"}));
  EXPECT_EQ(read.counts, (std::vector<std::int64_t>{20'000'000'000, 0}));
  for (const auto& [bad, shown] : std::vector<std::pair<std::string, std::string>>{{"dog", "dog"}, {"x\tdog", "x\\tdog"}, {"-1\tdog", "-1\\tdog"}, {"1.5\tdog", "1.5\\tdog"}, {"\tdog", "\\tdog"}})
    EXPECT_EQ(error_of([&] { read_concept_counts(write("bad.tsv", concat("3\tcat\n", bad, "\n"))); }),
              concat(folder_ / "bad.tsv", ":2: expected a count, a tab and an entry, got ", shown, "; tessera-data concepts writes such files"));
}

// Samples whose captions have a long tail: number i has the word "common", and every tenth one also a word of its own.
std::vector<Sample> long_tail(std::int64_t count) {
  std::vector<Sample> out = make_samples(count);
  for (std::int64_t i = 0; i < count; ++i) {
    out[static_cast<std::size_t>(i)].captions = {i % 10 == 0 ? concat("common, rare", i) : i % 10 == 1 ? "unlisted" : "common"};
  }
  return out;
}

std::vector<std::string> entries_of_long_tail(std::int64_t count) {
  std::vector<std::string> out{"common", "absent"};
  for (std::int64_t i = 0; i < count; i += 10) out.push_back(concat("rare", i));
  return out;
}

TEST_F(ConceptFiles, CountingCountsSamplesAndPredictsTheSizeOfAnEpoch) {
  std::vector<Sample> samples = long_tail(100);
  samples[2].captions = {"common", "common again"};
  samples[3].captions = {};
  const auto counted = count_concepts(std::make_shared<MemorySource>(samples), entries_of_long_tail(100), "list", {1, 30, 1000}, 3, folder_ / "", [](auto, auto) {});
  EXPECT_EQ(counted.samples, 99);
  EXPECT_EQ(counted.matched, 89);
  EXPECT_EQ(counted.left_out, (std::map<std::string, std::int64_t>{{"no_caption", 1}}));
  EXPECT_EQ(counted.counts.counts[0], 89) << "a sample counts once";
  EXPECT_EQ(counted.counts.counts[1], 0);
  EXPECT_EQ(counted.counts.counts[2], 1);
  const double others = 79;
  EXPECT_NEAR(counted.kept[0], 10 + others / 89, 1e-9);
  EXPECT_NEAR(counted.kept[1], 10 + others * 30 / 89, 1e-9);
  EXPECT_NEAR(counted.kept[2], 89, 1e-9);
  EXPECT_EQ(error_of([&] { count_concepts(std::make_shared<MemorySource>(samples), {"nowhere"}, "list", {}, 1, folder_ / "", [](auto, auto) {}); }),
            "memory, 100 samples: no sample contains an entry of list: left out 1 no_caption");
}

class BalancedLoader : public ConceptFiles {
 protected:
  static constexpr std::int64_t kSamples = 400;

  BalancedLoader() {
    write_concept_counts(folder_ / "counts.tsv", count_concepts(std::make_shared<MemorySource>(long_tail(kSamples)), entries_of_long_tail(kSamples), "list", {},
                                                                2, folder_ / "", [](auto, auto) {}).counts);
  }
  LoaderSettings settings(std::int64_t threads, std::int64_t batch = 8, const std::string& more = "") const {
    return loader_settings(concat("{batch_size: ", batch, ", threads: ", threads, ", balance: {counts: '", folder_ / "counts.tsv", "', threshold: 90}", more, "}"));
  }
  Loader make(std::int64_t threads, const RankSlice& slice = {}, std::int64_t batch = 8, std::uint64_t seed = 3, const std::string& more = "") const {
    return Loader(std::make_shared<MemorySource>(long_tail(kSamples)), std::make_shared<ByteTokenizer>(), {.image_size = 8}, settings(threads, batch, more), {}, seed, slice);
  }
  /// Returns the keys of the samples of an epoch, in order.
  static std::vector<std::string> epoch(Loader& loader, std::int64_t number) {
    loader.seek({number, 0});
    std::vector<std::string> out;
    while (true) {
      const Batch batch = loader.next();
      if (loader.epoch() != number) return out;
      out.insert(out.end(), batch.keys.begin(), batch.keys.end());
    }
  }
};

// Each of 40 rare samples is in every epoch; of 320 others, each epoch has about 90 / 360 of them. A last batch of up to 7 may be missing.
TEST_F(BalancedLoader, AnEpochHasAllRareSamplesAndSomeOfTheOthersOnce) {
  Loader loader = make(2);
  std::vector<std::set<std::string>> epochs;
  std::int64_t rare = 0, others = 0;
  for (int number = 0; number < 6; ++number) {
    const std::vector<std::string> keys = epoch(loader, number);
    epochs.emplace_back(keys.begin(), keys.end());
    EXPECT_EQ(epochs.back().size(), keys.size()) << "no sample comes twice";
    for (const std::string& key : keys) {
      const std::int64_t index = std::stoll(key);
      EXPECT_NE(index % 10, 1) << "a sample without an entry is never used";
      (index % 10 == 0 ? rare : others) += 1;
    }
  }
  EXPECT_GE(rare, 6 * (40 - 7));
  EXPECT_NEAR(static_cast<double>(others), 6 * 80 - 6 * 3.5, 3 * std::sqrt(6 * 320 * 0.25 * 0.75));
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_GT(loader.statistics().left_out, 6 * 200);
  EXPECT_TRUE(loader.statistics().skipped.empty()) << "samples that are left out are not bad";
}

TEST_F(BalancedLoader, DependsOnTheSeedAndNotOnThreads) {
  Loader two = make(2), five = make(5), other = make(2, {}, 8, 4);
  const auto keys = epoch(two, 1);
  EXPECT_EQ(keys, epoch(five, 1));
  EXPECT_NE(std::set<std::string>(keys.begin(), keys.end()).size(), 0U);
  const auto others = epoch(other, 1);
  EXPECT_NE(std::set<std::string>(keys.begin(), keys.end()), std::set<std::string>(others.begin(), others.end()));
}

TEST_F(BalancedLoader, ResumesExactly) {
  expect_resumes([&](std::int64_t threads) { return make(threads); }, 32, 3, 6);
}

TEST_F(BalancedLoader, CaptionChoiceAllKeepsOrDropsAnImageWithAllItsCaptions) {
  std::vector<Sample> samples = long_tail(kSamples);
  for (Sample& sample : samples) sample.captions.push_back("second");
  Loader loader(std::make_shared<MemorySource>(samples), std::make_shared<ByteTokenizer>(), {.image_size = 8}, settings(2, 4, ", caption_choice: all"), {}, 3);
  std::map<std::string, int> seen;
  for (const std::string& key : epoch(loader, 0)) ++seen[key];
  const auto once = std::ranges::count_if(seen, [](const auto& each) { return each.second == 1; });
  EXPECT_LE(once, 3) << "only the samples of the missing last batch may have lost a caption";
  EXPECT_GT(seen.size(), 80U);
}

TEST_F(BalancedLoader, RanksShareTheSamplesOfOneProcess) {
  Loader whole = make(2);
  const std::vector<std::string> all = epoch(whole, 0);
  const std::set<std::string> of_one(all.begin(), all.end());
  std::set<std::string> of_two;
  for (int rank = 0; rank < 2; ++rank) {
    Loader loader = make(2, {rank, 2}, 4);
    for (const std::string& key : epoch(loader, 0)) EXPECT_TRUE(of_two.insert(key).second) << key;
  }
  std::vector<std::string> only_one;
  std::ranges::set_symmetric_difference(of_one, of_two, std::back_inserter(only_one));
  EXPECT_LE(only_one.size(), 7U + 3U + 3U) << "each loader leaves out its last samples if they do not fill a batch";
}

TEST_F(BalancedLoader, TooFewKeptSamplesForABatchAreAnError) {
  write_concept_counts(folder_ / "counts.tsv", {{"absent"}, {1}});
  EXPECT_TRUE(error_of([&] { make(2).next(); }).starts_with("memory, 400 samples: returned only 0 samples that data.loader.balance keeps, fewer than one batch of 8"))
      << error_of([&] { make(2).next(); });
}

TEST_F(BalancedLoader, AMissingFileIsNamed) {
  const std::string error = error_of([&] { loader_settings("{balance: {counts: none.tsv}}"); });
  EXPECT_EQ(error, "no error") << "a dry run on another machine reads the settings";
  EXPECT_TRUE(error_of([&] { ConceptBalance(*loader_settings("{balance: {counts: none.tsv}}").balance, 1); }).starts_with("run.yaml:1: balance.counts: none.tsv"))
      << error_of([&] { ConceptBalance(*loader_settings("{balance: {counts: none.tsv}}").balance, 1); });
}

}  // namespace
}  // namespace tessera
