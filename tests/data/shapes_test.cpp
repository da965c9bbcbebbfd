#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "src/base/digest.h"
#include "src/data/shapes/shapes.h"
#include "tests/data/read_shapes.h"
#include "tests/support/error_of.h"
#include <tessera/base/text.h>

namespace tessera {
namespace {

TEST(Shapes, SamplesAreFrozen) {
  ShapesSettings settings = shapes_settings("train");
  const ShapesSource train(settings);
  EXPECT_EQ(fingerprint(train.get(0)), 11765289053054220988ULL);
  EXPECT_EQ(fingerprint(train.get(99999)), 11989328433091094908ULL);
  settings.split = "held_out";
  settings.image_size = 96;
  settings.seed = 7;
  settings.regions = true;
  settings.label = "color";
  EXPECT_EQ(fingerprint(ShapesSource(settings).get(41)), 12586856036623735710ULL);
}

// The hashes below were computed before the settings `style`, `bad_captions` and `object_sizes` existed.
TEST(Shapes, SamplesOfOldSettingsAreFrozen) {
  const auto hash_of = [](const ShapesSettings& settings) {
    const ShapesSource source(settings);
    std::uint64_t hash = 0;
    for (std::int64_t i = 0; i < 200; ++i) {
      const Sample sample = source.get(i);
      std::string text = concat(fingerprint(sample), " ", sample.label);
      for (const ObjectAnnotation& object : sample.objects) {
        text += concat(" ", object.label, object.phrase, object.caption);
        for (const std::int64_t number : {object.box[0], object.box[1], object.box[2], object.box[3], object.span[0], object.span[1]})
          text += concat(" ", number);
        for (const std::string& negative : object.negatives) text += negative;
      }
      for (const TextField& field : sample.texts)
        for (const std::string& part : field.texts) text += part;
      hash = fingerprint(text, hash);
    }
    return hash;
  };
  EXPECT_EQ(hash_of({}), 11793392303193582865ULL);
  EXPECT_EQ(hash_of({.split = "held_out", .image_size = 48, .aspect = 2, .seed = 5, .captions = 3, .partial_captions = 0.6,
                     .label = "color", .regions = true}),
            8775416652422369647ULL);
  EXPECT_EQ(hash_of({.split = "test", .objects = {3, 4}, .parts = false, .negatives = false}), 12764694329380988961ULL);
}

TEST(Shapes, SamplesDoNotDependOnOrderThreadsOrSize) {
  ShapesSettings settings = shapes_settings("train", 64);
  settings.regions = true;
  const ShapesSource source(settings);
  std::vector<std::uint64_t> forwards(64);
  for (std::int64_t i = 0; i < 64; ++i) forwards[static_cast<std::size_t>(i)] = fingerprint(source.get(i));
  std::vector<std::uint64_t> threaded(64);
  std::vector<std::thread> threads;
  for (std::int64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (std::int64_t i = 63 - t; i >= 0; i -= 4) threaded[static_cast<std::size_t>(i)] = fingerprint(source.get(i));
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(threaded, forwards);
  settings.size = 1000;
  EXPECT_EQ(fingerprint(ShapesSource(settings).get(63)), forwards[63]);
}

TEST(Shapes, SplitsAndSeedsAreDifferentStreams) {
  std::set<std::vector<std::uint8_t>> images;
  for (const char* split : {"train", "validation", "test", "held_out"}) {
    for (std::int64_t seed : {0, 1}) {
      ShapesSettings settings = shapes_settings(split);
      settings.seed = seed;
      const ShapesSource source(settings);
      for (std::int64_t i = 0; i < 20; ++i) images.insert(source.get(i).image.pixels);
    }
  }
  EXPECT_EQ(images.size(), 160U);
}

TEST(Shapes, CaptionsAreTrueAndNameEveryObject) {
  for (const char* split : {"train", "held_out"}) {
    const ShapesSource source(shapes_settings(split));
    int relations = 0;
    for (std::int64_t i = 0; i < 400; ++i) {
      const Sample sample = source.get(i);
      const std::vector<Seen> objects = look(sample);
      ASSERT_EQ(sample.captions.size(), 5U);
      for (const std::string& caption : sample.captions) {
        const Read read = read_caption(caption);
        EXPECT_EQ(read.phrases.size(), objects.size()) << caption;
        EXPECT_TRUE(holds(read, objects, 0.04)) << i << ": " << caption << " | " << sample.object_tags;
        EXPECT_LE(std::count(caption.begin(), caption.end(), ' '), 29) << caption;
        for (const Read::Phrase& phrase : read.phrases) relations += phrase.relation.empty() ? 0 : 1;
      }
      EXPECT_TRUE(holds(read_caption(sample.summary), objects, 0)) << sample.summary;
      EXPECT_EQ(read_caption(sample.summary).phrases.size(), objects.size());
    }
    EXPECT_GT(relations, 400);
  }
}

TEST(Shapes, TonesOfBackgroundsAreTrueAndBackgroundsAreNearlyGrey) {
  const ShapesSource source(shapes_settings("train"));
  int said = 0;
  for (std::int64_t i = 0; i < 200; ++i) {
    const Sample sample = source.get(i);
    double sum = 0;
    double count = 0;
    for (std::size_t p = 0; p < sample.mask.size(); ++p) {
      const std::uint8_t* pixel = &sample.image.pixels[3 * p];
      const auto row = static_cast<std::int64_t>(p / 64);
      const auto column = static_cast<std::int64_t>(p % 64);
      const bool near_object =
          std::any_of(sample.objects.begin(), sample.objects.end(), [&](const ObjectAnnotation& o) {
            return row >= o.box[0] - 3 && row < o.box[0] + o.box[2] + 3 && column >= o.box[1] - 3 &&
                   column < o.box[1] + o.box[3] + 3;
          });
      if (near_object) continue;
      EXPECT_LE(*std::max_element(pixel, pixel + 3) - *std::min_element(pixel, pixel + 3), 30);
      sum += pixel[1];
      ++count;
    }
    const double mean = sum / count;
    for (const std::string& caption : sample.captions) {
      const std::string tone = read_caption(caption).tone;
      if (tone.empty()) continue;
      ++said;
      EXPECT_EQ(tone, mean > 180 ? "light" : mean > 85 ? "gray" : "dark") << mean;
    }
  }
  EXPECT_GT(said, 50);
}

TEST(Shapes, PartsAreTrueOfOneObjectOrTwoAndNameEachObject) {
  const ShapesSource source(shapes_settings("train"));
  int relations = 0;
  for (std::int64_t i = 0; i < 200; ++i) {
    const Sample sample = source.get(i);
    const std::vector<Seen> objects = look(sample);
    ASSERT_EQ(sample.texts.size(), 1U);
    EXPECT_EQ(sample.texts[0].name, "parts");
    EXPECT_TRUE(sample.texts[0].is_list);
    const std::vector<std::string>& parts = sample.texts[0].texts;
    EXPECT_EQ(std::set<std::string>(parts.begin(), parts.end()).size(), parts.size()) << "none twice";
    std::size_t single = 0;
    for (const std::string& part : parts) {
      const Read read = read_caption(part);
      EXPECT_TRUE(holds(read, objects, 0.04)) << i << ": " << part << " | " << sample.object_tags;
      EXPECT_EQ(part.find('.'), std::string::npos) << "a sentence stays whole";
      ASSERT_TRUE(read.phrases.size() == 1 || read.phrases.size() == 2) << part;
      single += read.phrases.size() == 1 ? 1 : 0;
      relations += read.phrases.size() == 2 ? 1 : 0;
    }
    EXPECT_GE(single, objects.size());
    EXPECT_LE(single, 2 * objects.size());
  }
  EXPECT_GT(relations, 100);
  ShapesSettings without = shapes_settings("train");
  without.parts = false;
  EXPECT_TRUE(ShapesSource(without).get(0).texts.empty());
  EXPECT_EQ(fingerprint(ShapesSource(without).get(0)), fingerprint(source.get(0))) << "nothing else changes";
}

TEST(Shapes, PartialCaptionsAreTrueAndTheFirstStaysWhole) {
  ShapesSettings settings = shapes_settings("train");
  settings.partial_captions = 1;
  const ShapesSource source(settings);
  int partial = 0;
  for (std::int64_t i = 0; i < 100; ++i) {
    const Sample sample = source.get(i);
    const std::vector<Seen> objects = look(sample);
    EXPECT_EQ(read_caption(sample.captions[0]).phrases.size(), objects.size());
    for (const std::string& caption : sample.captions) {
      const Read read = read_caption(caption);
      EXPECT_TRUE(holds(read, objects, 0.04)) << caption;
      partial += read.phrases.size() < objects.size() ? 1 : 0;
    }
  }
  EXPECT_GT(partial, 50);
}

TEST(Shapes, NegativesAreFalse) {
  std::map<std::string, int> kinds;
  for (const char* split : {"test", "held_out"}) {
    const ShapesSource source(shapes_settings(split));
    for (std::int64_t i = 0; i < 500; ++i) {
      const Sample sample = source.get(i);
      const std::vector<Seen> objects = look(sample);
      std::set<std::string> here;
      for (const HardNegative& negative : sample.negatives) {
        EXPECT_FALSE(holds(read_caption(negative.caption), objects, -0.05))
            << i << " " << negative.kind << ": " << negative.caption << " | " << sample.object_tags << " | "
            << sample.captions[0];
        EXPECT_TRUE(here.insert(negative.kind).second);
        ++kinds[negative.kind];
      }
    }
  }
  ASSERT_EQ(kinds.size(), 7U);
  for (const char* kind : {"replace_obj", "replace_att", "replace_rel", "swap_obj", "swap_att", "add_obj", "add_att"})
    EXPECT_GT(kinds[kind], 500) << kind;
}

TEST(Shapes, MasksBoxesAndLabelsAgree) {
  for (const char* label : {"shape", "color"}) {
    ShapesSettings settings = shapes_settings("validation");
    settings.label = label;
    const ShapesSource source(settings);
    const std::vector<std::string> names = source.class_names();
    ASSERT_EQ(source.background_class(), static_cast<std::int64_t>(names.size()) - 1);
    EXPECT_EQ(names.back(), "background");
    for (std::int64_t i = 0; i < 200; ++i) {
      const Sample sample = source.get(i);
      const std::vector<Seen> objects = look(sample);
      ASSERT_EQ(objects.size(), sample.objects.size());
      ASSERT_EQ(sample.mask.size(), 64U * 64U);
      EXPECT_EQ(sample.label, sample.objects[0].label);
      std::vector<int> inside(sample.objects.size());
      for (std::int64_t row = 0; row < 64; ++row) {
        for (std::int64_t column = 0; column < 64; ++column) {
          const int value = sample.mask[static_cast<std::size_t>(row * 64 + column)];
          bool covered = value == source.background_class();
          for (std::size_t k = 0; k < sample.objects.size(); ++k) {
            const auto& [top, left, height, width] = sample.objects[k].box;
            const bool in_box = row >= top && row < top + height && column >= left && column < left + width;
            if (!in_box || value != sample.objects[k].label) continue;
            ++inside[k];
            covered = true;
          }
          EXPECT_TRUE(covered) << "sample " << i << ": class " << value << " outside of its boxes";
        }
      }
      for (std::size_t k = 0; k < sample.objects.size(); ++k) {
        const auto& object = sample.objects[k];
        const Seen& seen = objects[k];
        EXPECT_EQ(names[static_cast<std::size_t>(object.label)],
                  std::string(label) == "shape" ? seen.shape : seen.color);
        EXPECT_GT(inside[k], static_cast<int>(object.box[2] * object.box[3] / 4)) << sample.object_tags;
        // The box is tight if pixels of the class touch all four sides.
        const auto& [top, left, height, width] = object.box;
        std::array<bool, 4> sides{};
        for (std::int64_t j = 0; j < width; ++j) {
          sides[0] |= sample.mask[static_cast<std::size_t>(top * 64 + left + j)] == object.label;
          sides[1] |= sample.mask[static_cast<std::size_t>((top + height - 1) * 64 + left + j)] == object.label;
        }
        for (std::int64_t j = 0; j < height; ++j) {
          sides[2] |= sample.mask[static_cast<std::size_t>((top + j) * 64 + left)] == object.label;
          sides[3] |= sample.mask[static_cast<std::size_t>((top + j) * 64 + left + width - 1)] == object.label;
        }
        EXPECT_EQ(sides, (std::array<bool, 4>{true, true, true, true}));
      }
    }
  }
}

TEST(Shapes, SpansPointAtThePhraseOfTheirObject) {
  const ShapesSource source(shapes_settings("train"));
  for (std::int64_t i = 0; i < 200; ++i) {
    const Sample sample = source.get(i);
    const std::vector<Seen> objects = look(sample);
    std::set<std::int64_t> starts;
    for (std::size_t k = 0; k < objects.size(); ++k) {
      const auto& object = sample.objects[k];
      ASSERT_LE(object.span[1], static_cast<std::int64_t>(sample.captions[0].size()));
      EXPECT_EQ(sample.captions[0].substr(static_cast<std::size_t>(object.span[0]),
                                          static_cast<std::size_t>(object.span[1] - object.span[0])),
                object.phrase);
      EXPECT_TRUE(object.phrase.starts_with("a ") || object.phrase.starts_with("an orange ")) << object.phrase;
      EXPECT_TRUE(object.phrase.ends_with(" " + objects[k].shape)) << object.phrase;
      EXPECT_TRUE(holds(read_caption(object.phrase), {objects[k]}, 0)) << object.phrase;
      EXPECT_TRUE(starts.insert(object.span[0]).second);
    }
  }
}

TEST(Shapes, NegativesOfPhrasesHaveOneWordWrong) {
  ShapesSettings settings = shapes_settings("train");
  for (std::int64_t i = 0; i < 100; ++i) {
    settings.negatives = true;
    const Sample sample = ShapesSource(settings).get(i);
    const std::vector<Seen> objects = look(sample);
    for (std::size_t k = 0; k < objects.size(); ++k) {
      const auto& object = sample.objects[k];
      const auto words = [](std::string text) {
        std::istringstream in(text.substr(text.find(' ') + 1));  // skips the article
        return std::vector<std::string>(std::istream_iterator<std::string>(in), {});
      };
      const std::set<std::string> different(object.negatives.begin(), object.negatives.end());
      EXPECT_EQ(different.size(), object.negatives.size());
      EXPECT_GE(different.size(), 9U) << "each other shape";
      for (const std::string& negative : object.negatives) {
        EXPECT_FALSE(holds(read_caption(negative), {objects[k]}, 0)) << negative << " of " << object.phrase;
        const auto ours = words(negative), right = words(object.phrase);
        ASSERT_EQ(ours.size(), right.size());
        int wrong = 0;
        for (std::size_t w = 0; w < ours.size(); ++w) wrong += ours[w] != right[w] ? 1 : 0;
        EXPECT_EQ(wrong, 1) << negative << " of " << object.phrase;
      }
    }
    settings.negatives = false;
    for (const ObjectAnnotation& object : ShapesSource(settings).get(i).objects) EXPECT_TRUE(object.negatives.empty());
  }
}

TEST(Shapes, HeldOutPairsAreSeenInTheirSplitOnly) {
  std::map<std::string, std::set<std::pair<int, int>>> pairs;
  for (const char* split : {"train", "validation", "test", "held_out"}) {
    ShapesSettings settings = shapes_settings(split);
    settings.image_size = 16;
    settings.captions = 1;
    const ShapesSource source(settings);
    for (std::int64_t i = 0; i < 1500; ++i)
      for (const Seen& seen : look(source.get(i)))
        pairs[split].insert({index_in(shapes_shape_names(), seen.shape), index_in(shapes_color_names(), seen.color)});
  }
  EXPECT_EQ(pairs["held_out"].size(), 10U);
  for (const char* split : {"train", "validation", "test"}) EXPECT_EQ(pairs[split].size(), 70U) << split;
  for (const auto& [shape, color] : pairs["held_out"]) {
    EXPECT_TRUE(shapes_held_out_pair(shape, color));
    EXPECT_FALSE(pairs["train"].contains({shape, color}));
  }
}

TEST(Shapes, ScenesDoNotDependOnTheImageSize) {
  ShapesSettings large = shapes_settings("train");
  large.image_size = 192;
  const ShapesSource small_source(shapes_settings("train"));
  const ShapesSource large_source(large);
  for (std::int64_t i = 0; i < 20; ++i) {
    const Sample a = small_source.get(i);
    const Sample b = large_source.get(i);
    EXPECT_EQ(a.captions, b.captions);
    EXPECT_EQ(b.image.pixels.size(), 192U * 192U * 3U);
    for (std::size_t k = 0; k < a.objects.size(); ++k)
      for (std::size_t c = 0; c < 4; ++c)
        EXPECT_NEAR(static_cast<double>(b.objects[k].box[c]) / 3, static_cast<double>(a.objects[k].box[c]), 2.01);
  }
}

TEST(Shapes, RegionsHoldAProjectionAndTheBox) {
  ShapesSettings settings = shapes_settings("train");
  EXPECT_TRUE(ShapesSource(settings).get(2).regions.empty());
  settings.regions = true;
  const Sample sample = ShapesSource(settings).get(2);
  ASSERT_EQ(sample.region_width, 2052);
  ASSERT_EQ(sample.regions.size(), sample.objects.size() * 2052);
  for (std::size_t k = 0; k < sample.objects.size(); ++k) {
    const float* row = &sample.regions[k * 2052];
    double square = 0;
    for (int c = 0; c < 2048; ++c) square += row[c] * row[c];
    EXPECT_GT(square / 2048, 0.01);
    EXPECT_LT(square / 2048, 2);
    const auto& [top, left, height, width] = sample.objects[k].box;
    EXPECT_FLOAT_EQ(row[2048], static_cast<float>(left) / 64);
    EXPECT_FLOAT_EQ(row[2049], static_cast<float>(top) / 64);
    EXPECT_FLOAT_EQ(row[2050], static_cast<float>(left + width) / 64);
    EXPECT_FLOAT_EQ(row[2051], static_cast<float>(top + height) / 64);
  }
}

TEST(Shapes, NumberOfObjectsFollowsTheSetting) {
  ShapesSettings settings = shapes_settings("train");
  settings.objects = {4, 4};
  for (std::int64_t i = 0; i < 100; ++i) EXPECT_EQ(ShapesSource(settings).get(i).objects.size(), 4U);
  settings.objects = {1, 1};
  for (std::int64_t i = 0; i < 100; ++i) EXPECT_EQ(ShapesSource(settings).get(i).objects.size(), 1U);
}

// With one object per image, a pair of shape and color that is not held out has a probability that is proportional to the product of the
// weights of its shape and its color.
TEST(Shapes, SkewMakesTheNthShapeAndColorRarerByAPowerOfN) {
  constexpr std::int64_t kSamples = 4000;
  for (const std::int64_t skew : {1, 3}) {
    ShapesSettings settings = shapes_settings("train");
    settings.image_size = 32;
    settings.objects = {1, 1};
    settings.skew = skew;
    std::vector<double> shapes(shapes_shape_names().size()), colors(shapes_color_names().size()), seen_shapes(shapes.size()), seen_colors(colors.size());
    double total = 0;
    for (std::size_t shape = 0; shape < shapes.size(); ++shape)
      for (std::size_t color = 0; color < colors.size(); ++color) {
        if (shapes_held_out_pair(static_cast<std::int64_t>(shape), static_cast<std::int64_t>(color))) continue;
        const double weight = std::pow(static_cast<double>((shape + 1) * (color + 1)), -static_cast<double>(skew));
        shapes[shape] += weight;
        colors[color] += weight;
        total += weight;
      }
    const ShapesSource source(settings);
    for (std::int64_t i = 0; i < kSamples; ++i) {
      const std::vector<Seen> objects = look(source.get(i));
      ASSERT_EQ(objects.size(), 1U);
      ++seen_shapes.at(static_cast<std::size_t>(index_in(shapes_shape_names(), objects[0].shape)));
      ++seen_colors.at(static_cast<std::size_t>(index_in(shapes_color_names(), objects[0].color)));
    }
    const auto expect_near = [&](const std::vector<double>& seen, const std::vector<double>& weights, const std::string& what) {
      for (std::size_t n = 0; n < seen.size(); ++n) {
        const double share = weights[n] / total, deviation = std::sqrt(kSamples * share * (1 - share));
        EXPECT_NEAR(seen[n], kSamples * share, 4 * deviation + 1) << what << " " << n << " with skew " << skew;
      }
    };
    expect_near(seen_shapes, shapes, "shape");
    expect_near(seen_colors, colors, "color");
  }
}

TEST(Shapes, TheVocabularyIsSmall) {
  const ShapesSource source(shapes_settings("train"));
  std::set<std::string> words;
  for (std::int64_t i = 0; i < 1000; ++i) {
    for (const std::string& caption : source.get(i).captions) {
      std::istringstream stream(caption);
      for (std::string word; stream >> word;) words.insert(word.substr(0, word.find(',')));
    }
  }
  EXPECT_GE(words.size(), 50U);
  EXPECT_LE(words.size(), 70U);
}

std::shared_ptr<Source> made_from(const std::string& yaml) {
  return sources().make(config::Value<config::ModuleSettings>::read(config::parse_yaml(yaml, "a.yaml"), "data", {}), "data");
}

void expect_error(const std::string& yaml, const std::string& message) {
  EXPECT_EQ(error_of([&] { made_from(yaml); }), message) << yaml;
}

TEST(Shapes, WrongSettingsAreNamed) {
  expect_error(
      "{name: shapes, split: trian}",
      "a.yaml:1: data.split: expected one of train, validation, test and held_out, got \"trian\": did you mean train?");
  expect_error("{name: shapes, objects: [3, 2]}", "a.yaml:1: data.objects: expected [fewest, most], got [3, 2]");
  expect_error("{name: shapes, objects: [0, 2]}", "a.yaml:1: data.objects: expected from 1 to 6, got 0");
  expect_error("{name: shapes, objects: [1, 6]}",
               "a.yaml:1: data.object_sizes: objects of 0.26 of the image's side are too large for 6 in an image: the smallest may be "
               "at most 0.22");
  expect_error("{name: shapes, object_sizes: [0.5, 0.3]}",
               "a.yaml:1: data.object_sizes: expected [smallest, largest], got [0.5, 0.3]");
  expect_error("{name: shapes, image_size: 16, object_sizes: [0.18, 0.3]}",
               "a.yaml:1: data.object_sizes: the smallest objects would be 2.88 pixels wide, expected at least 3: raise object_sizes or "
               "image_size");
  expect_error("{name: shapes, bad_captions: {less: 0.5, more: 0.6}}",
               "a.yaml:1: data.bad_captions: less, more and other are 1.1 of the captions together: they may be at most 1");
  expect_error("{name: shapes, bad_captions: {fewer: 0.5}}", "a.yaml:1: data.bad_captions.fewer: unknown key; known: less, more and other");
  expect_error("{name: shapes, style: wep}", "a.yaml:1: data.style: expected one of plain and web, got \"wep\": did you mean web?");
  expect_error("{name: shapes, sise: 3}", "a.yaml:1: data.sise: unknown key: did you mean size?");
}

TEST(Shapes, TheRegistryMakesIt) {
  const std::shared_ptr<const IndexedSource> source = indexed(made_from("{name: shapes, split: test, size: 12}"));
  EXPECT_EQ(source->size(), 12);
  EXPECT_EQ(source->describe(), "shapes test, 12 samples");
  EXPECT_EQ(source->get(3).key, "test_00000003");
}

}  // namespace
}  // namespace tessera
