// Tests the text view that holds K captions per image: how it draws captions and how a batch stores them.

#include <map>
#include <set>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/data/loading/training_examples.h"
#include "tests/data/batches.h"
#include "tests/data/fake_source.h"
#include "tests/support/golden.h"
#include <tessera/data/loading/loader.h>

namespace tessera {
namespace {

using Texts = std::vector<std::string>;

class GoldenCaptions : public testing::TestWithParam<std::string> {};
TEST_P(GoldenCaptions, Agrees) { expect_case_agrees(GetParam(), probe::all_runners()); }
INSTANTIATE_TEST_SUITE_P(Cases, GoldenCaptions, testing::ValuesIn(golden_cases("captions", "caption_sampler_")),
                         golden_name);

TextField text(const std::string& name, const std::string& value) { return {{{value}, false}, name}; }
TextField list(const std::string& name, const Texts& values) { return {{values, true}, name}; }

Texts sampled(const std::string& settings, const std::vector<TextField>& fields, std::vector<double> draws = {}) {
  std::size_t used = 0;
  const CaptionSampler sampler(config::read<CaptionSamplerSettings>(config::parse_yaml(settings, "test")));
  Texts out = sampler.sample(fields, [&] { return draws.at(used++); });
  EXPECT_EQ(used, draws.size());
  EXPECT_EQ(std::ssize(out), sampler.count());
  return out;
}

TEST(CaptionSampler, WithoutFieldNamesUsesAllFieldsInTheirOrder) {
  const std::vector<TextField> fields = {text("b", "One. Two"), list("a", {"Three. Four", "", "Five"})};
  EXPECT_EQ(sampled("{slots: [{min_sentences: 9, max_sentences: 9, consecutive: 1}]}", fields, {0.9}),
            Texts{"One. Two. Three. Four. Five"});
  EXPECT_EQ(sampled("{fields: [a, none], slots: [{min_sentences: 9, max_sentences: 9, consecutive: 1}]}", fields, {0.9}),
            Texts{"Three. Four. Five"});
}

TEST(CaptionSampler, WholeUsesTheFirstPresentFieldWithoutSplitting) {
  const std::vector<TextField> fields = {list("empty", {""}), text("raw", "A cat. It sleeps."), list("l", {"x", "", "y"})};
  EXPECT_EQ(sampled("{slots: [{whole: true, count: 2, fields: [empty, raw]}, {whole: true, fields: [l]}, "
                    "{whole: true, fields: [none]}]}",
                    fields),
            (Texts{"A cat. It sleeps.", "A cat. It sleeps.", "x. y", ""}));
}

TEST(CaptionSampler, WithoutSentencesCaptionsAreEmptyAndNothingIsDrawn) {
  EXPECT_EQ(sampled("{slots: [{count: 2, max_sentences: 3}]}", {text("a", " ..\n"), list("b", {""})}), (Texts{"", ""}));
}

TEST(CaptionSampler, UnicodeWhiteSpaceIsTrimmedFromSentences) {
  EXPECT_EQ(sampled("{slots: [{min_sentences: 4, max_sentences: 4, consecutive: 1}]}",
                    {text("a", "\u3000one\u00A0. \x1Ctwo\u2009</s>\u2028.caf\u00E9")}, {0.5}),
            Texts{"one. two. caf\u00E9"});
}

TEST(CaptionSampler, ImpossibleLengthsAreRefused) {
  EXPECT_NE(error_of([] { sampled("{slots: [{min_sentences: 3, max_sentences: 2}]}", {}); })
                .find("slots[0].max_sentences: is 2, less than min_sentences (3)"),
            std::string::npos);
}

// Returns samples that have the text fields `raw` (one sentence) and `long` (five sentences).
std::vector<Sample> with_fields(std::int64_t count) {
  std::vector<Sample> samples = make_samples(count);
  for (Sample& sample : samples) {
    const std::string& i = sample.key;
    sample.texts = {list("raw", {"raw" + i}), text("long", concat("a", i, ". b", i, ". c", i, ". d", i, ". e", i))};
  }
  return samples;
}

LoaderSettings settings_of(const std::string& captions, std::int64_t batch_size) {
  LoaderSettings out;
  out.batch_size = batch_size;
  out.captions = config::read<CaptionViewSettings>(config::parse_yaml(captions, "test"));
  out.max_bad_share = 1;
  return out;
}

const Needs kBoth{.texts = {{"caption", {}}, {"captions", {}}}};

class PaddedBytes : public ByteTokenizer {
 public:
  bool pad_is_text() const override { return true; }
};

Loader loader_of(std::vector<Sample> samples, const LoaderSettings& settings, const Needs& needs = kBoth,
                 const RankSlice& slice = {}, std::shared_ptr<Tokenizer> tokenizer = nullptr) {
  if (!tokenizer) tokenizer = std::make_shared<ByteTokenizer>();
  return {std::make_shared<MemorySource>(std::move(samples)), tokenizer, {.image_size = 4}, settings, needs, 3, slice};
}

Loader in_order(std::vector<Sample> samples, LoaderSettings settings, const Needs& needs = kBoth) {
  settings.shuffle = false;
  return loader_of(std::move(samples), settings, needs);
}

const char* const kDreamlip = "{slots: [{whole: true, fields: [raw]}, {count: 3, distinct: true, fields: [long]}]}";

TEST(CaptionsView, HasOneTextPerSlotAndTheLengthOfTheLongestText) {
  LoaderSettings settings = settings_of(kDreamlip, 4);
  settings.caption_choice = "first";
  const Batch batch = in_order(with_fields(4), settings).next();
  const TowerInput& view = batch.texts.at("captions");
  EXPECT_EQ(view.ids.sizes(), (at::IntArrayRef{4, 4, 7})) << "the longest text is \"first 3\" of the view caption";
  EXPECT_EQ(view.mask.sizes(), view.ids.sizes());
  EXPECT_EQ(view.lengths.sizes(), (at::IntArrayRef{4, 4}));
  EXPECT_TRUE(at::equal(view.mask.sum(2), view.lengths));
  EXPECT_TRUE(at::equal(view.ids.masked_fill(view.mask, 0), at::zeros_like(view.ids)));
  EXPECT_EQ(batch.texts.at("caption").ids.sizes(), (at::IntArrayRef{4, 7})) << "the view of one caption must stay the same";
  for (std::int64_t row = 0; row < 4; ++row) {
    const std::string i = std::to_string(row);
    EXPECT_EQ(text_at(view, row, 0), "raw" + i);
    std::set<std::string> sentences;
    for (std::int64_t k = 1; k < 4; ++k) sentences.insert(text_at(view, row, k));
    EXPECT_EQ(sentences.size(), 3U) << "the sentences must be distinct";
    for (const std::string& each : sentences) EXPECT_EQ(each.substr(1), i);
  }
}

TEST(CaptionsView, AMissingCaptionIsARowOfPadding) {
  std::vector<Sample> samples = with_fields(2);
  samples[0].texts.erase(samples[0].texts.begin());
  for (const bool pad_is_text : {false, true}) {
    LoaderSettings settings = settings_of(kDreamlip, 2);
    settings.shuffle = false;
    const std::shared_ptr<Tokenizer> padded = std::make_shared<PaddedBytes>();
    const Batch batch = loader_of(samples, settings, kBoth, {}, pad_is_text ? padded : nullptr).next();
    const TowerInput& view = batch.texts.at("captions");
    EXPECT_FALSE(view.mask[0][0].any().item<bool>());
    EXPECT_EQ(view.ids[0][0].abs().sum().item<std::int64_t>(), 0);
    EXPECT_EQ(view.lengths[0][0].item<std::int64_t>(), 0);
    EXPECT_EQ(view.lengths[1][0].item<std::int64_t>(), pad_is_text ? 20 : 4);
    EXPECT_EQ(view.mask[1][0].all().item<bool>(), pad_is_text);
  }
}

TEST(CaptionsView, DependsOnlyOnSeedEpochAndSampleNotOnRanksOrThreads) {
  using Seen = std::map<std::pair<std::int64_t, std::string>, Texts>;
  const std::string flair = "{slots: [{count: 4, max_sentences: 3}]}";
  const auto seen = [&](int ranks, std::int64_t threads) {
    Seen out;
    for (int rank = 0; rank < ranks; ++rank) {
      LoaderSettings settings = settings_of(flair, 8 / ranks);
      settings.threads = threads;
      Loader loader = loader_of(with_fields(16), settings, kBoth, {rank, ranks});
      for (int step = 0; step < 4; ++step) {
        const Batch batch = loader.next();
        for (std::int64_t row = 0; row < batch.size(); ++row)
          out[{loader.epoch(), batch.keys[static_cast<std::size_t>(row)]}] = texts_of(batch.texts.at("captions"), row);
      }
    }
    return out;
  };
  const Seen one = seen(1, 1);
  EXPECT_EQ(one.size(), 32U);
  int differ = 0;
  for (std::int64_t i = 0; i < 16; ++i)
    differ += one.at({0, std::to_string(i)}) != one.at({1, std::to_string(i)}) ? 1 : 0;
  EXPECT_GT(differ, 12) << "each epoch must draw again";
  EXPECT_EQ(seen(2, 3), one);
  EXPECT_EQ(seen(4, 2), one);
}

TEST(CaptionsView, ResumesWithTheSameCaptions) {
  const LoaderSettings settings = settings_of("{slots: [{count: 3, max_sentences: 2}]}", 4);
  expect_resumes([&](std::int64_t /*threads*/) { return loader_of(with_fields(12), settings); }, 7, 2, 3);
}

TEST(CaptionsView, DoesNotChangeTheViewOfOneCaption) {
  const LoaderSettings settings = settings_of("{slots: [{count: 3}]}", 8);
  const Batch with = loader_of(with_fields(8), settings).next(), without = loader_of(with_fields(8), settings, {}).next();
  EXPECT_EQ(with.keys, without.keys);
  EXPECT_TRUE(at::equal(with.texts.at("caption").mask.sum(1), without.texts.at("caption").mask.sum(1)));
  EXPECT_TRUE(at::equal(with.texts.at("caption").ids.slice(1, 0, without.texts.at("caption").ids.size(1)),
                        without.texts.at("caption").ids));
}

TEST(CaptionsView, FromAListTakesTheFirstCaptionsOrRandomOnesWithoutRepetition) {
  std::vector<Sample> samples = make_samples(2);
  samples[0].captions = {"a", "b", " ", "c", "d"};
  const Batch all = in_order(samples, settings_of("{choice: all, count: 3}", 2)).next();
  EXPECT_EQ(texts_of(all.texts.at("captions"), 0), (Texts{"a", "b", "c"}));
  EXPECT_EQ(texts_of(all.texts.at("captions"), 1), (Texts{"first 1", "second 1", ""})) << "slots after the end of the list must be empty";
  Loader random = in_order(samples, settings_of("{choice: random, count: 3}", 2));
  std::set<Texts> seen;
  for (int epoch = 0; epoch < 20; ++epoch) {
    const Texts texts = texts_of(random.next().texts.at("captions"), 0);
    EXPECT_EQ(std::set<std::string>(texts.begin(), texts.end()).size(), 3U) << "no caption may repeat";
    EXPECT_FALSE(std::ranges::count(texts, "") > 0);
    seen.insert(texts);
  }
  EXPECT_GT(seen.size(), 5U);
}

TEST(CaptionsView, WithoutTextFieldsDrawsFromTheCaptions) {
  std::vector<Sample> samples = with_fields(2);
  samples[0].texts.clear();
  const Batch batch = in_order(samples, settings_of("{slots: [{count: 2, distinct: true}]}", 2)).next();
  const Texts texts = texts_of(batch.texts.at("captions"), 0);
  EXPECT_EQ(std::set<std::string>(texts.begin(), texts.end()), (std::set<std::string>{"first 0", "second 0"}));
  EXPECT_EQ(text_at(batch.texts.at("captions"), 1, 0).find("first"), std::string::npos);
  const Batch named = in_order(samples, settings_of("{slots: [{whole: true, fields: [captions]}, {count: 5}]}", 2)).next();
  EXPECT_EQ(text_at(named.texts.at("captions"), 1, 0), "first 1. second 1");
  for (std::int64_t k = 1; k < 6; ++k) EXPECT_EQ(text_at(named.texts.at("captions"), 1, k).find("first"), std::string::npos);
}

TEST(CaptionsView, ASampleWithoutCaptionsIsSkippedUnlessTheViewIsOptional) {
  std::vector<Sample> samples = with_fields(4);
  samples[1].texts = {text("long", " . ")};
  samples[2].texts = {list("raw", {"caf\xE9"})};
  const Needs optional{.texts = {{"captions", {.optional = true}}}};
  Loader strict = in_order(samples, settings_of(kDreamlip, 2), {.texts = {{"captions", {}}}});
  EXPECT_EQ(strict.next().keys, (Texts{"0", "3"}));
  EXPECT_EQ(strict.statistics().skipped, (std::map<std::string, std::int64_t>{{"no_captions", 1}, {"not_utf8", 1}}));
  Loader lenient = in_order(samples, settings_of(kDreamlip, 3), optional);
  const Batch batch = lenient.next();
  EXPECT_EQ(batch.keys, (Texts{"0", "1", "3"})) << "damage must not count as absence";
  EXPECT_FALSE(batch.texts.at("captions").mask[1].any().item<bool>());
}

TEST(CaptionsView, EqualCaptionsHaveEqualGroups) {
  std::vector<Sample> samples = make_samples(3);
  samples[0].captions = {"a cat", "a dog"};
  samples[1].captions = {"a bird", "a cat"};
  samples[2].captions = {"a cat "};
  Needs needs{.texts = {{"captions", {}}}};
  const LoaderSettings settings = settings_of("{choice: all, count: 2}", 3);
  EXPECT_FALSE(in_order(samples, settings, needs).next().duplicates.captions_group.defined());
  needs.duplicates = true;
  const DuplicateGroups groups = in_order(samples, settings, needs).next().duplicates;
  ASSERT_EQ(groups.captions_group.sizes(), (at::IntArrayRef{3, 2}));
  const auto id = [&](int row, int k) { return groups.captions_group[row][k].item<std::int64_t>(); };
  EXPECT_EQ(id(0, 0), id(1, 1));
  EXPECT_NE(id(0, 0), id(0, 1));
  EXPECT_NE(id(0, 0), id(2, 0)) << "the byte tokenizer keeps the trailing space";
  EXPECT_FALSE(groups.caption_group.defined()) << "there is no view of one caption";
  needs.texts["caption"] = {};
  EXPECT_TRUE(in_order(samples, settings, needs).next().duplicates.caption_group.defined());
}

TEST(CaptionsView, MissingAndConflictingSettingsAreReported) {
  LoaderSettings settings;
  settings.batch_size = 2;
  EXPECT_EQ(error_of([&] { loader_of(with_fields(2), settings); }),
            "the objective asks for several captions of each image, but data.loader.captions is not set: set "
            "data.loader.captions.slots, as in [{count: 8, max_sentences: 3}], or choice: all and a count there");
  const auto problem = [](const std::string& captions) { return error_of([&] { settings_of(captions, 2); }); };
  EXPECT_NE(problem("{}").find("slots: is not set"), std::string::npos) << problem("{}");
  EXPECT_NE(problem("{choice: all}").find("count: is not set"), std::string::npos);
  EXPECT_NE(problem("{count: 2, slots: [{count: 2}]}").find("count: is for the choices all and random"), std::string::npos);
  EXPECT_NE(problem("{choice: all, count: 2, slots: [{count: 2}]}").find("slots: are for choice: sentences"),
            std::string::npos);
}

TEST(CaptionsView, UnknownFieldsAreReportedOnConstruction) {
  const std::string error =
      error_of([&] { loader_of(with_fields(2), settings_of("{fields: [row], slots: [{count: 2}]}", 2)); });
  EXPECT_NE(error.find("missing captions; found caption, image, label, the text field long and the text field raw"),
            std::string::npos)
      << error;
  EXPECT_TRUE(error.ends_with("captions come from row (data.loader.captions)")) << error;
}

TEST(CaptionsView, TextsCutAtTheContextLengthAreCounted) {
  std::vector<Sample> samples = make_samples(2);
  for (Sample& sample : samples) sample.captions = {std::string(30, 'x'), "twelve bytes"};
  LoaderSettings settings = settings_of("{choice: all, count: 3}", 2);
  settings.caption_choice = "first";
  Loader loader = in_order(samples, settings);
  EXPECT_TRUE(loader.statistics().cuts.empty());
  loader.next();
  const auto cuts = loader.statistics().cuts;
  const TextCuts& captions = cuts.at("captions");
  EXPECT_EQ(captions.texts, 4) << "missing captions must not count";
  EXPECT_EQ(captions.cut_texts, 2);
  EXPECT_EQ(captions.tokens, 2 * (30 + 12));
  EXPECT_EQ(captions.cut_tokens, 2 * 10);
  EXPECT_EQ(cuts.at("caption").cut_texts, 2);
}

TEST(CaptionsView, TrainingExamplesMarkMissingAndCutCaptions) {
  std::vector<Sample> samples = make_samples(1);
  samples[0].captions = {std::string(30, 'x'), "two"};
  const auto examples = training_examples(std::make_shared<MemorySource>(samples), std::make_shared<ByteTokenizer>(),
                                          {.image_size = 4}, settings_of("{choice: all, count: 3}", 1), kBoth, 1, 1);
  ASSERT_EQ(examples.size(), 1U);
  ASSERT_EQ(examples[0].several.at("captions").size(), 3U);
  EXPECT_TRUE(examples[0].several.at("captions")[0].cut);
  EXPECT_EQ(examples[0].several.at("captions")[1].text, "two");
  EXPECT_FALSE(examples[0].several.at("captions")[1].cut);
  EXPECT_EQ(examples[0].several.at("captions")[2].tokens, 0);
  EXPECT_TRUE(examples[0].texts.contains("caption"));
}

}  // namespace
}  // namespace tessera
