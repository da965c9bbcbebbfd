// Tests web-like captions of the built-in shapes. Such captions may not match their image, and together they use thousands of words.
#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "src/data/shapes/shapes.h"
#include "src/data/shapes/web_words.h"
#include "tests/data/read_shapes.h"

namespace tessera {
namespace {

ShapesSettings web_settings() {
  ShapesSettings settings = shapes_settings("train");
  settings.style = "web";
  return settings;
}

ShapesSettings bad_settings(const BadCaptionShares& shares, const std::string& style) {
  ShapesSettings settings = shapes_settings("train");
  settings.style = style;
  settings.bad_captions = shares;
  settings.captions = 2;
  settings.image_size = 16;
  settings.parts = settings.negatives = false;
  return settings;
}

// Maps each word that the style `web` uses for an object's property to the plain word for it.
const std::map<std::string, std::string>& plain_words() {
  static const std::map<std::string, std::string> words = [] {
    std::map<std::string, std::string> out;
    const auto add = [&](const std::vector<std::string>& names, const shapes::WordList& (*list)(int)) {
      for (std::size_t i = 0; i < names.size(); ++i)
        for (const std::string& word : list(static_cast<int>(i)).words())
          EXPECT_TRUE(out.emplace(word, names[i]).second) << word << " stands for two things";
    };
    add(shapes_shape_names(), shapes::shape_words);
    add(shapes_color_names(), shapes::color_words);
    add(shapes_texture_names(), shapes::texture_words);
    add(shapes_size_names(), shapes::size_words);
    return out;
  }();
  return words;
}

// Rewrites a caption of the style `web` in the words of the style `plain`, which read_caption() can parse.
std::string in_plain_words(std::string caption) {
  static const std::vector<std::array<std::string, 2>> phrases = {
      {"on the left side of", "left of"},  {"on the right side of", "right of"}, {"left from", "left of"},
      {"right from", "right of"},          {"higher than", "above"},             {"lower than", "below"},
      {"near the top edge", "at the top"}, {"near the bottom edge", "at the bottom"}, {"near the left edge", "on the left"},
      {"near the right edge", "on the right"}, {"in the upper half", "at the top"}, {"in the lower half", "at the bottom"},
      {"in the left half", "on the left"}, {"in the right half", "on the right"}, {"in the center", "in the middle"},
      {"at the center", "in the middle"}};
  for (const auto& [from, to] : phrases)
    for (std::size_t at = caption.find(from); at != std::string::npos; at = caption.find(from))
      caption.replace(at, from.size(), to);
  std::istringstream stream(caption);
  std::string out;
  for (std::string word; stream >> word;) {
    const bool comma = word.back() == ',';
    if (comma) word.pop_back();
    if (word == "over") word = "above";
    if (word == "beneath" || word == "underneath") word = "below";
    if (const auto known = plain_words().find(word); known != plain_words().end()) word = known->second;
    out += (out.empty() ? "" : " ") + word + (comma ? "," : "");
  }
  return out;
}

Read read_in(const std::string& style, const std::string& caption) {
  return read_caption(style == "web" ? in_plain_words(caption) : caption);
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream stream(text);
  for (std::string word; stream >> word;) words.push_back(word.substr(0, word.find(',')));
  return words;
}

class BadCaptions : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Styles, BadCaptions, ::testing::Values("plain", "web"), [](const auto& style) { return std::string(style.param); });

TEST_P(BadCaptions, OfEachKindAreWhatTheyAreCalled) {
  const ShapesSource clean(bad_settings({}, GetParam()));
  struct Kind {
    BadCaptionShares all;
    void (*check)(const Read&, const std::vector<Seen>&, const std::string&);
  };
  const std::vector<Kind> kinds = {
      {{.less = 1}, [](const Read& read, const std::vector<Seen>& objects, const std::string& caption) {
         EXPECT_LT(read.phrases.size(), objects.size()) << caption;
         EXPECT_EQ(read.phrases.empty(), objects.size() == 1) << caption;
         EXPECT_TRUE(holds(read, objects, -0.15)) << caption;
       }},
      {{.more = 1}, [](const Read& read, const std::vector<Seen>& objects, const std::string& caption) {
         EXPECT_TRUE(read.phrases.size() == objects.size() + 1 || read.phrases.size() == objects.size() + 2) << caption;
         std::size_t there = 0;
         for (const Read::Phrase& phrase : read.phrases) {
           const auto has_shape = [&](const Seen& o) { return o.shape == phrase.said.at("shape"); };
           there += std::any_of(objects.begin(), objects.end(), has_shape) ? 1 : 0;
         }
         EXPECT_EQ(there, objects.size()) << caption;
       }},
      {{.other = 1}, [](const Read& read, const std::vector<Seen>& objects, const std::string& caption) {
         EXPECT_FALSE(read.phrases.empty()) << caption;
         EXPECT_FALSE(holds(read, objects, -0.05)) << caption;
       }}};
  for (const Kind& kind : kinds) {
    const ShapesSource source(bad_settings(kind.all, GetParam()));
    for (std::int64_t i = 0; i < 300; ++i) {
      const Sample sample = source.get(i), truth = clean.get(i);
      const std::vector<Seen> objects = look(truth);
      for (const std::string& caption : sample.captions)
        kind.check(read_in(GetParam(), caption), objects, concat(i, ": ", caption, " | ", sample.object_tags));
      EXPECT_EQ(sample.image.pixels, truth.image.pixels);
      EXPECT_EQ(sample.mask, truth.mask);
      EXPECT_EQ(sample.label, truth.label);
      EXPECT_EQ(sample.object_tags, truth.object_tags);
    }
  }
}

TEST_P(BadCaptions, ComeAsOftenAsAsked) {
  const ShapesSource clean(bad_settings({}, GetParam()));
  const ShapesSource source(bad_settings({.less = 0.1, .more = 0.2, .other = 0.3}, GetParam()));
  constexpr std::int64_t kSamples = 3000;
  std::array<int, 3> counts{};
  std::array<int, 2> of_caption{};
  for (std::int64_t i = 0; i < kSamples; ++i) {
    const Sample sample = source.get(i), truth = clean.get(i);
    const std::vector<Seen> objects = look(truth);
    for (std::size_t c = 0; c < 2; ++c) {
      if (sample.captions[c] == truth.captions[c]) continue;
      ++of_caption[c];
      const Read read = read_in(GetParam(), sample.captions[c]);
      const auto named = [&](const Seen& o) {
        return std::any_of(read.phrases.begin(), read.phrases.end(),
                           [&](const Read::Phrase& phrase) { return phrase.said.at("shape") == o.shape; });
      };
      const bool all = std::all_of(objects.begin(), objects.end(), named);
      ++counts[holds(read, objects, -0.15) ? 0 : all && read.phrases.size() > objects.size() ? 1 : 2];
    }
  }
  // A caption that comes from another image (`other`) counts as `less` if it happens to be nearly true of this image, and as `more` if it
  // happens to name all of this image's objects. The tolerances allow for this.
  EXPECT_NEAR(counts[0], 0.1 * 2 * kSamples, 70);
  EXPECT_NEAR(counts[1], 0.2 * 2 * kSamples, 180);
  EXPECT_NEAR(counts[0] + counts[1] + counts[2], 0.6 * 2 * kSamples, 120);
  for (const int count : of_caption) EXPECT_NEAR(count, 0.6 * kSamples, 90) << "the first caption as often as the second";
}

TEST_P(BadCaptions, HaveAnnotationsOnlyForWhatIsThere) {
  ShapesSettings settings = bad_settings({.less = 0.3, .more = 0.3, .other = 0.3}, GetParam());
  settings.negatives = true;
  const ShapesSource source(settings), clean(bad_settings({}, GetParam()));
  int without_phrase = 0, with_negatives = 0;
  for (std::int64_t i = 0; i < 400; ++i) {
    const Sample sample = source.get(i);
    const std::vector<Seen> objects = look(sample);
    const Read read = read_in(GetParam(), sample.captions[0]);
    const bool whole = sample.captions[0] == clean.get(i).captions[0];
    const bool is_true = whole || read.phrases.empty() || holds(read, objects, -0.15);
    std::size_t phrases = 0;
    for (std::size_t k = 0; k < objects.size(); ++k) {
      const ObjectAnnotation& object = sample.objects[k];
      if (object.phrase.empty()) {
        EXPECT_EQ(object.span, (std::array<std::int64_t, 2>{0, 0}));
        EXPECT_TRUE(object.negatives.empty());
        continue;
      }
      ++phrases;
      EXPECT_EQ(sample.captions[0].substr(static_cast<std::size_t>(object.span[0]),
                                          static_cast<std::size_t>(object.span[1] - object.span[0])),
                object.phrase);
      EXPECT_TRUE(holds(read_in(GetParam(), object.phrase), {objects[k]}, 0)) << object.phrase;
      EXPECT_FALSE(object.negatives.empty());
    }
    without_phrase += phrases < objects.size() ? 1 : 0;
    if (whole) {
      EXPECT_EQ(phrases, objects.size());
    }
    if (!sample.negatives.empty()) {
      ++with_negatives;
      EXPECT_TRUE(is_true) << sample.captions[0];
    }
    EXPECT_EQ(read_in(GetParam(), sample.summary).phrases.size(), read.phrases.size())
        << sample.summary << " sums up " << sample.captions[0];
  }
  EXPECT_GT(without_phrase, 150);
  EXPECT_GT(with_negatives, 80);
}

TEST(WebCaptions, AreTrueAndLeaveTheImageAsItIs) {
  const ShapesSource web(web_settings()), plain(shapes_settings("train"));
  for (std::int64_t i = 0; i < 300; ++i) {
    const Sample sample = web.get(i), other = plain.get(i);
    EXPECT_EQ(sample.image.pixels, other.image.pixels);
    EXPECT_EQ(sample.mask, other.mask);
    EXPECT_EQ(sample.object_tags, other.object_tags);
    EXPECT_EQ(sample.texts[0].texts, other.texts[0].texts) << "parts stay in plain words";
    const std::vector<Seen> objects = look(sample);
    for (const std::string& caption : sample.captions) {
      const Read read = read_in("web", caption);
      EXPECT_EQ(read.phrases.size(), objects.size()) << caption;
      EXPECT_TRUE(holds(read, objects, 0.04)) << i << ": " << caption << " | " << sample.object_tags;
      EXPECT_LE(words_of(caption).size(), 40U) << caption;
    }
    EXPECT_TRUE(holds(read_in("web", sample.summary), objects, 0)) << sample.summary;
  }
}

TEST(WebCaptions, FollowFromSeedAndIndex) {
  ShapesSettings settings = web_settings();
  settings.bad_captions = {.less = 0.2, .more = 0.2, .other = 0.2};
  const std::uint64_t first = fingerprint(ShapesSource(settings).get(5));
  settings.size = 6;
  EXPECT_EQ(fingerprint(ShapesSource(settings).get(5)), first) << "whatever the size";
  settings.captions = 1;
  EXPECT_EQ(ShapesSource(settings).get(5).captions[0], ShapesSource(web_settings()).get(5).captions[0])
      << "a caption that fits is the same with and without bad ones";
  settings.seed = 1;
  EXPECT_NE(fingerprint(ShapesSource(settings).get(5)), first);
}

// Returns all words that captions in the style `web` can contain. The comma is not among them.
std::set<std::string> web_vocabulary() {
  using namespace shapes;
  std::set<std::string> all;
  const auto add = [&](const WordList& list) { all.insert(list.words().begin(), list.words().end()); };
  // function words such as "the" and "of", and the words of the style `plain`
  add(WordList("a an the one this that my our of in on at to and with by for near under below over above beneath underneath left right "
               "side top bottom middle center upper lower edge corner half part higher than plus also along as well together during before "
               "after until up against from is are there we see showing picture image scene light gray dark background plain red"));
  for (int i = 0; i < 10; ++i) add(shape_words(i));
  for (int i = 0; i < 8; ++i) add(color_words(i));
  for (int i = 0; i < 4; ++i) add(texture_words(i));
  for (int i = 0; i < 3; ++i) {
    add(size_words(i));
    add(time_words(static_cast<Tone>(i)));
    for (int k = 0; k < 4; ++k) add(backdrop_words(static_cast<Tone>(i), static_cast<Backdrop>(k)));
  }
  for (std::size_t i = 1; i <= 6; ++i) add(count_words(i));
  for (int i = 0; i <= static_cast<int>(Topic::shop); ++i) add(topic_words(static_cast<Topic>(i)));
  return all;
}

TEST(WebCaptions, HaveThousandsOfWordsOfTheVocabulary) {
  ShapesSettings settings = web_settings();
  settings.image_size = 16;
  settings.parts = settings.negatives = false;
  const ShapesSource source(settings);
  std::map<std::string, int> counts;
  int all = 0;
  for (std::int64_t i = 0; i < 6000; ++i)
    for (const std::string& caption : source.get(i).captions)
      for (const std::string& word : words_of(caption)) {
        ++counts[word];
        ++all;
      }
  EXPECT_GE(counts.size(), 2400U);
  const auto often = std::count_if(counts.begin(), counts.end(), [](const auto& each) { return each.second >= 10; });
  EXPECT_GE(often, 2000) << "words that come ten times or more in 30,000 captions";
  const std::set<std::string> vocabulary = web_vocabulary();
  for (const auto& [word, count] : counts) {
    EXPECT_TRUE(vocabulary.contains(word)) << word;
    EXPECT_LT(count, all / 8) << word << " is more than an eighth of all words";
  }
}

TEST(WebCaptions, HavePhrasesOfTwoToSevenWords) {
  ShapesSettings settings = web_settings();
  settings.objects = {1, 3};
  const ShapesSource source(settings);
  std::map<std::size_t, int> lengths;
  for (std::int64_t i = 0; i < 500; ++i) {
    const Sample sample = source.get(i);
    const std::vector<Seen> objects = look(sample);
    for (std::size_t k = 0; k < objects.size(); ++k) {
      const ObjectAnnotation& object = sample.objects[k];
      EXPECT_EQ(sample.captions[0].substr(static_cast<std::size_t>(object.span[0]),
                                          static_cast<std::size_t>(object.span[1] - object.span[0])),
                object.phrase);
      const std::vector<std::string> words = words_of(object.phrase);
      ++lengths[words.size()];
      EXPECT_EQ(plain_words().at(words.back()), objects[k].shape) << object.phrase;
      EXPECT_TRUE(holds(read_in("web", object.phrase), {objects[k]}, 0)) << object.phrase;
    }
  }
  EXPECT_EQ(lengths.begin()->first, 2U);
  EXPECT_EQ(lengths.rbegin()->first, 7U);
  for (std::size_t words = 2; words <= 7; ++words) EXPECT_GT(lengths[words], 80) << words;
}

TEST(WebCaptions, HaveHardNegativesThatAreFalse) {
  ShapesSettings settings = web_settings();
  settings.split = "test";
  const ShapesSource source(settings);
  std::map<std::string, int> kinds;
  for (std::int64_t i = 0; i < 500; ++i) {
    const Sample sample = source.get(i);
    const std::vector<Seen> objects = look(sample);
    for (const HardNegative& negative : sample.negatives) {
      EXPECT_FALSE(holds(read_in("web", negative.caption), objects, -0.05))
          << i << " " << negative.kind << ": " << negative.caption << " | " << sample.object_tags;
      ++kinds[negative.kind];
    }
    for (std::size_t k = 0; k < objects.size(); ++k)
      for (const std::string& negative : sample.objects[k].negatives)
        EXPECT_FALSE(holds(read_in("web", negative), {objects[k]}, 0)) << negative << " of " << sample.objects[k].phrase;
  }
  EXPECT_EQ(kinds.size(), 7U);
}

TEST(ShapeSizes, FollowTheSettingWithSixObjects) {
  ShapesSettings settings = shapes_settings("train");
  settings.objects = {6, 6};
  settings.object_sizes = {0.18, 0.26};
  settings.image_size = 200;
  const ShapesSource source(settings);
  for (std::int64_t i = 0; i < 60; ++i) {
    const Sample sample = source.get(i);
    ASSERT_EQ(sample.objects.size(), 6U);
    for (const ObjectAnnotation& object : sample.objects) {
      EXPECT_GE(std::max(object.box[2], object.box[3]), 200 * 0.18 * 0.8);
      EXPECT_LE(std::max(object.box[2], object.box[3]), 200 * 0.26 * 1.25);
    }
    EXPECT_TRUE(holds(read_caption(sample.captions[0]), look(sample), 0.04)) << sample.captions[0];
    EXPECT_LE(words_of(sample.captions[0]).size(), 30U);
  }
  for (std::int64_t most = 1; most <= 6; ++most) {
    settings.objects = {most, most};
    settings.object_sizes = {std::array{0.8, 0.44, 0.36, 0.3, 0.26, 0.22}[static_cast<std::size_t>(most - 1)], 0.8};
    for (std::int64_t i = 125; i < 135; ++i)  // two objects of 0.44 fit into image 130 only if both have the smallest size
      EXPECT_EQ(ShapesSource(settings).get(i).objects.size(), static_cast<std::size_t>(most));
  }
}

}  // namespace
}  // namespace tessera
