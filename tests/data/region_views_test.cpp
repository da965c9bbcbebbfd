// Tests the boxes of objects in image views, and three kinds of text views: phrases of boxes, hard negatives of these phrases, and hard
// negatives of the whole image.

#include <map>
#include <set>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/data/image/image_views.h"
#include "src/data/loading/training_examples.h"
#include "src/data/sources/tables.h"
#include "src/data/sources/webdataset/webdataset.h"
#include "src/io/tar.h"
#include "tests/data/batches.h"
#include "tests/data/fake_source.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/shards.h"
#include <tessera/data/loading/loader.h>

namespace tessera {
namespace {

using Texts = std::vector<std::string>;

// Returns a black image with a white object in `box` (top, left, height, width).
Sample with_object(std::int64_t height, std::int64_t width, const Box& box, bool encoded) {
  Sample sample;
  sample.key = "a";
  Image image{height, width, std::vector<std::uint8_t>(static_cast<std::size_t>(height * width * 3), 0)};
  for (std::int64_t y = box[0]; y < box[0] + box[2]; ++y)
    for (std::int64_t x = box[1]; x < box[1] + box[3]; ++x)
      std::fill_n(image.pixels.begin() + 3 * (y * width + x), 3, std::uint8_t{255});
  if (encoded)
    sample.encoded = test::encode(image, ".png");
  else
    sample.image = std::move(image);
  return sample;
}

// Finds the white object in a view. Returns where it begins and ends, as fractions of the view's height (axis 0) or width (axis 1).
std::array<double, 2> extent_of_light(const std::vector<std::uint8_t>& planes, std::int64_t height, std::int64_t width,
                                      int axis) {
  const std::int64_t length = axis == 0 ? height : width, across = axis == 0 ? width : height;
  std::vector<double> light(static_cast<std::size_t>(length), 0);
  for (std::int64_t i = 0; i < length; ++i)
    for (std::int64_t j = 0; j < across; ++j)
      light[static_cast<std::size_t>(i)] =
          std::max(light[static_cast<std::size_t>(i)],
                   planes[static_cast<std::size_t>(axis == 0 ? i * width + j : j * width + i)] / 255.0);
  double begin = 0, end = static_cast<double>(length);
  for (std::int64_t i = 0; i < length && light[static_cast<std::size_t>(i)] < 0.5; ++i) ++begin;
  for (std::int64_t i = length; i > 0 && light[static_cast<std::size_t>(i - 1)] < 0.5; --i) --end;
  return {begin / static_cast<double>(length), end / static_cast<double>(length)};
}

TEST(BoxesOfViews, AreTransformedLikeTheirPixels) {
  const Box box{20, 50, 25, 30};  // top, left, height and width in an image of 60 x 100 pixels
  for (const bool encoded : {false, true})
    for (const char* yaml :
         {"{augmentation: {scale: [0.5, 1], flip: 0.5, color_jitter: {probability: 0}}}",
          "{augmentation: {crop: evaluation, flip: 0.5}}", "{augmentation: {scale: [0.9, 1], ratio: [1.9, 2.1]}}"})
      for (const char* mode : {"shortest", "longest", "squash"}) {
        SCOPED_TRACE(std::string(yaml) + mode);
        const Sample sample = with_object(60, 100, box, encoded);
        Preprocessing preprocessing;
        preprocessing.image_size = config::Size(48, 40);
        preprocessing.resize_mode = mode;
        preprocessing.crop_pct = 0.9;
        const Needs needs{.images = {{"image", {.boxes = true}}}, .texts = {}};
        const ImageViews views(preprocessing, loader_settings(yaml), needs, 3);
        int compared = 0;
        for (std::int64_t index = 0; index < 40; ++index) {
          const SeenBox seen = views.see(sample, {box}, index, 1).at("image").at(0);
          if (seen.visible < 0.3) continue;
          ++compared;
          const auto planes = views.make(sample, index, 1).at("image").planes;
          const auto rows = extent_of_light(planes, 48, 40, 0), columns = extent_of_light(planes, 48, 40, 1);
          EXPECT_NEAR(seen.corners[0], columns[0], 0.6 / 40) << index;
          EXPECT_NEAR(seen.corners[1], rows[0], 0.6 / 48) << index;
          EXPECT_NEAR(seen.corners[2], columns[1], 0.6 / 40) << index;
          EXPECT_NEAR(seen.corners[3], rows[1], 0.6 / 48) << index;
        }
        EXPECT_GT(compared, 10);
      }
}

TEST(BoxesOfViews, ReportTheVisibleShareOfTheBox) {
  Preprocessing preprocessing;  // views with this preprocessing show columns 20 to 80 of the image of 60 x 100 pixels
  preprocessing.image_size = 30;
  const Needs needs{.images = {{"image", {.boxes = true}}}, .texts = {}};
  const ImageViews views(preprocessing, loader_settings("{augmentation: {crop: evaluation}}"), needs, 3);
  const Sample sample = with_object(60, 100, {0, 0, 1, 1}, true);
  const auto seen =
      views.see(sample, {{10, 10, 20, 20}, {0, 0, 60, 10}, {30, 40, 30, 20}, {-10, 30, 20, 200}}, 0, 0).at("image");
  EXPECT_NEAR(seen[0].visible, 0.5, 1e-6);
  EXPECT_EQ(seen[0].corners, (std::array<float, 4>{0, 10.0F / 60, 10.0F / 60, 0.5F}));
  EXPECT_EQ(seen[1].visible, 0);
  EXPECT_NEAR(seen[2].visible, 1, 1e-6);
  EXPECT_NEAR(seen[3].visible, 5.0 / 7, 1e-6) << "the share of the part inside the image";
  EXPECT_EQ(sample_error_of([&] { views.see(sample, {{0, 100, 5, 5}}, 0, 0); }),
            "bad_box: sample a: the box [100, 0, 105, 5] is outside the image of 100 x 60 pixels");
}

TEST(BoxesOfViews, AreRefusedIfTheAugmentationMovesObjects) {
  const Needs with{.images = {{"image", {.boxes = true}}}, .texts = {}},
      without{.images = {{"image", {}}}, .texts = {}};
  for (const char* yaml :
       {"{augmentation: {auto_augment: imagenet}}", "{augmentation: {rand_augment: {operations: 2}}}"}) {
    EXPECT_EQ(error_of([&] { ImageViews({}, loader_settings(yaml), with, 1); }),
              "the objective asks for the boxes of the image view image, but boxes do not follow the changes by auto_augment and "
              "rand_augment: remove both from data.loader.augmentation");
    EXPECT_EQ(error_of([&] { ImageViews({}, loader_settings(yaml), without, 1); }), "no error");
  }
}

const Needs kRegionNeeds{.images = {{"image", {.boxes = true}}},
                         .texts = {{"phrases", {}}, {"phrase_negatives", {.optional = true}}}};

// Returns samples. Sample i has i objects side by side, each 4 pixels wide. Their phrases are "p0", "p1", ..., and object k has k
// negatives: object 3 has "3-0", "3-1" and "3-2". Each sample also has a box without a phrase and a phrase without a box.
std::vector<Sample> with_regions(std::int64_t count) {
  std::vector<Sample> samples = make_samples(count);
  for (std::int64_t i = 0; i < count; ++i) {
    samples[static_cast<std::size_t>(i)].objects = {{.box = {0, 0, 5, 5}}, {.phrase = "no box"}};
    for (std::int64_t k = 0; k < i; ++k) {
      ObjectAnnotation object{.box = {2, 4 * k, 10, 4}, .phrase = concat("p", k)};
      for (std::int64_t n = 0; n < k; ++n) object.negatives.push_back(concat(k, "-", n));
      samples[static_cast<std::size_t>(i)].objects.push_back(object);
    }
  }
  return samples;
}

Loader region_loader(std::vector<Sample> samples, LoaderSettings settings, const Needs& needs,
                     const RankSlice& slice = {}) {
  settings.max_bad_share = 1;
  return {std::make_shared<MemorySource>(std::move(samples)), std::make_shared<ByteTokenizer>(), {.image_size = 8}, settings,
          needs, 3, slice};
}

const char* const kInOrder =
    "{batch_size: 3, shuffle: false, augmentation: {crop: evaluation}, boxes: {count: 2, negatives: 2}}";

TEST(RegionViews, PhrasesAndNegativesBelongToTheirBox) {
  Loader loader = region_loader(with_regions(6), loader_settings(kInOrder), kRegionNeeds);
  const Batch first = loader.next();
  EXPECT_EQ(first.keys, (Texts{"1", "2", "3"})) << "sample 0 has no phrase with a box";
  const Boxes& boxes = first.images.at("image").boxes;
  const TowerInput &phrases = first.texts.at("phrases"), &negatives = first.texts.at("phrase_negatives");
  ASSERT_EQ(boxes.corners.sizes(), (at::IntArrayRef{3, 2, 4}));
  ASSERT_EQ(phrases.ids.sizes().slice(0, 2), (at::IntArrayRef{3, 2}));
  ASSERT_EQ(negatives.ids.sizes().slice(0, 2), (at::IntArrayRef{3, 4}));
  EXPECT_TRUE(at::equal(boxes.mask, phrases.mask.any(2)));
  EXPECT_TRUE(at::equal(boxes.mask.sum(1), at::tensor({1, 2, 2}, at::kLong)));
  for (std::int64_t row = 0; row < 3; ++row)
    for (std::int64_t r = 0; r < 2; ++r) {
      const at::Tensor corners = boxes.corners[row][r];
      if (!boxes.mask[row][r].item<bool>()) {
        EXPECT_EQ(corners.abs().sum().item<float>(), 0);
        EXPECT_FALSE(negatives.mask[row].narrow(0, 2 * r, 2).any().item<bool>());
        continue;
      }
      const std::int64_t k = std::stoll(text_at(phrases, row, r).substr(1));
      // The image of this row is 24 pixels wide and 20 + key % 5 pixels high; its key is row + 1. The view is the image's center crop.
      // preprocessed_part() computes where this crop begins, rounded as in evaluation.
      const double height = 20 + static_cast<double>((row + 1) % 5);
      const auto part = preprocessed_part(static_cast<std::int64_t>(height), 24, {.image_size = 8});
      EXPECT_NEAR(corners[0].item<float>(), std::max(0.0, (4.0 * static_cast<double>(k) - part[1]) / part[3]), 1e-6);
      EXPECT_NEAR(corners[3].item<float>(), (12 - part[0]) / part[2], 1e-6);
      const Texts of_box = {text_at(negatives, row, 2 * r), text_at(negatives, row, 2 * r + 1)};
      EXPECT_EQ(std::ranges::count(of_box, ""), 2 - std::min<std::int64_t>(2, k)) << "missing negatives must be empty";
      EXPECT_TRUE(of_box[0].empty() || of_box[0] != of_box[1]) << "no negative may repeat";
      for (const std::string& text : of_box) EXPECT_TRUE(text.empty() || text.starts_with(concat(k, "-"))) << text;
    }
}

TEST(RegionViews, DependOnlyOnSeedEpochAndSampleNotOnRanksOrThreads) {
  using Seen = std::map<std::pair<std::int64_t, std::string>, std::pair<Texts, std::vector<float>>>;
  std::vector<Sample> samples = with_regions(9);
  for (Sample& sample : samples)
    for (std::size_t k = 2; k < sample.objects.size(); ++k)  // makes the boxes so narrow that all are inside the image
      sample.objects[k].box = {2, 2 * static_cast<std::int64_t>(k) - 4, 10, 2};
  const auto seen = [&](int ranks, std::int64_t threads) {
    Seen out;
    for (int rank = 0; rank < ranks; ++rank) {
      LoaderSettings settings =
          loader_settings(concat("{batch_size: ", 4 / ranks, ", threads: ", threads,
                                 ", boxes: {count: 2, negatives: 1}, augmentation: {scale: [0.5, 1], flip: 0.5}}"));
      Loader loader = region_loader(samples, settings, kRegionNeeds, {rank, ranks});
      for (int step = 0; step < 4; ++step) {
        const Batch batch = loader.next();
        for (std::int64_t row = 0; row < batch.size(); ++row) {
          Texts texts = texts_of(batch.texts.at("phrases"), row);
          for (std::string& text : texts_of(batch.texts.at("phrase_negatives"), row))
            texts.push_back(std::move(text));
          const at::Tensor corners = batch.images.at("image").boxes.corners[row].contiguous();
          out[{loader.epoch(), batch.keys[static_cast<std::size_t>(row)]}] = {
              texts, std::vector<float>(corners.data_ptr<float>(), corners.data_ptr<float>() + corners.numel())};
        }
      }
    }
    return out;
  };
  const Seen one = seen(1, 1);
  EXPECT_EQ(seen(1, 3), one);
  for (const auto& [place, drawn] : seen(2, 2))
    if (one.contains(place)) {
      EXPECT_EQ(drawn, one.at(place)) << place.second;
    }
  int differ = 0;
  for (const auto& [place, drawn] : one)
    if (place.first == 0 && one.contains({1, place.second})) differ += drawn != one.at({1, place.second}) ? 1 : 0;
  EXPECT_GT(differ, 4) << "each epoch must draw again";
}

TEST(RegionViews, AnInvisibleBoxIsMaskedAndHasNoTexts) {
  std::vector<Sample> samples = with_regions(7);
  samples.erase(samples.begin(), samples.begin() + 6);  // leaves one sample, whose six objects together span the image's width of 24 pixels
  for (const char* least : {"0", "0.3", "1"}) {
    const LoaderSettings settings =
        loader_settings(concat("{batch_size: 1, shuffle: false, augmentation: {scale: [0.2, 0.3]}, boxes: {count: 6, "
                               "negatives: 1, least_visible: ",
                               least, "}}"));
    Loader loader = region_loader(samples, settings, kRegionNeeds);
    std::int64_t there = 0;
    for (int epoch = 0; epoch < 20; ++epoch) {
      const Batch batch = loader.next();
      const Boxes& boxes = batch.images.at("image").boxes;
      EXPECT_TRUE(at::equal(boxes.mask, batch.texts.at("phrases").mask.any(2)));
      const at::Tensor negatives = batch.texts.at("phrase_negatives").mask.any(2);
      EXPECT_FALSE((negatives & ~boxes.mask).any().item<bool>());
      const at::Tensor widths = boxes.corners.select(2, 2) - boxes.corners.select(2, 0);
      EXPECT_TRUE(at::equal(widths > 0, boxes.mask));
      there += boxes.mask.sum().item<std::int64_t>();
    }
    EXPECT_GT(there, 0);
    EXPECT_LT(there, 120);
  }
}

TEST(RegionViews, EachImageViewHasItsOwnMask) {
  const Needs needs{.images = {{"image", {.boxes = true}}, {"small", {.boxes = true}}, {"plain", {}}},
                    .texts = {{"phrases", {}}}};
  const LoaderSettings settings = loader_settings(
      "{batch_size: 4, augmentation: {crop: evaluation}, views: {small: {scale: [0.1, 0.2]}, plain: {}}, boxes: "
      "{count: 3}}");
  const Batch batch = region_loader(with_regions(8), settings, needs).next();
  const Boxes &whole = batch.images.at("image").boxes, &part = batch.images.at("small").boxes;
  EXPECT_FALSE(batch.images.at("plain").boxes.mask.defined());
  EXPECT_TRUE(at::equal(batch.texts.at("phrases").mask.any(2), whole.mask | part.mask));
  EXPECT_LT(part.mask.sum().item<std::int64_t>(), whole.mask.sum().item<std::int64_t>());
}

TEST(RegionViews, BadBoxesAreSkippedAndCountedOnlyIfBoxesAreNeeded) {
  std::vector<Sample> samples = with_regions(5);
  samples[2].bad_boxes = "regions[0].box is [1, 2]; expected [left, top, right, bottom]";
  samples[3].objects[3].box = {2, 400, 10, 4};
  Loader loader = region_loader(samples, loader_settings("{batch_size: 2, shuffle: false, boxes: {count: 2}}"),
                                {.images = {{"image", {.boxes = true}}}, .texts = {{"phrases", {}}}});
  EXPECT_EQ(loader.next().keys, (Texts{"1", "4"}));
  EXPECT_EQ(loader.statistics().skipped, (std::map<std::string, std::int64_t>{{"bad_box", 2}, {"no_phrases", 1}}));
  Loader without =
      region_loader(samples, loader_settings("{batch_size: 5, shuffle: false}"), {.texts = {{"caption", {}}}});
  EXPECT_EQ(without.next().size(), 5);
}

TEST(RegionViews, MissingSettingsAreReported) {
  const auto error = [](const std::string& yaml, const Needs& needs) {
    return error_of([&] { region_loader(with_regions(4), loader_settings(yaml), needs); });
  };
  EXPECT_EQ(error("{batch_size: 2}", kRegionNeeds),
            "the objective asks for boxes of objects or their phrases, but data.loader.boxes is not set: set it, as in "
            "{count: 4, negatives: 10}");
  EXPECT_EQ(error("{batch_size: 2, boxes: {count: 2}}", kRegionNeeds),
            "the objective asks for hard negatives of phrases, but data.loader.boxes.negatives is 0: set how many each "
            "phrase has");
  EXPECT_EQ(error("{batch_size: 2}", {.texts = {{"negatives", {}}}}),
            "the objective asks for hard negatives of each image, but data.loader.negatives is not set: set it, as in "
            "{count: 1}");
  const std::string missing = error_of([&] {
    region_loader(make_samples(2), loader_settings("{batch_size: 2, boxes: {count: 2}}"), {.texts = {{"phrases", {}}}});
  });
  EXPECT_NE(missing.find("missing phrases; found caption, image and label"), std::string::npos) << missing;
}

TEST(RegionViews, TrainingExamplesShowBoxesAsOutlines) {
  const auto examples = [&](const std::string& yaml, const Needs& needs) {
    std::vector<Sample> samples = with_regions(3);
    samples.erase(samples.begin(), samples.begin() + 2);
    return training_examples(std::make_shared<MemorySource>(samples), std::make_shared<ByteTokenizer>(), {.image_size = 16},
                             loader_settings(yaml), needs, 1, 1);
  };
  const auto with =
      examples("{batch_size: 1, augmentation: {crop: evaluation}, boxes: {count: 2, negatives: 1}}", kRegionNeeds);
  const auto without = examples("{batch_size: 1, augmentation: {crop: evaluation}}", {.texts = {}});
  EXPECT_EQ(with[0].several.at("phrases").size(), 2U);
  EXPECT_EQ(with[0].several.at("phrase_negatives").size(), 2U);
  EXPECT_NE(with[0].images.at("image").pixels, without[0].images.at("image").pixels);
}

TEST(NegativesView, DrawsFromTheSamplesNegatives) {
  std::vector<Sample> samples = make_samples(3);
  samples[0].negatives = {{"swap_att", "a"}, {"", "b"}, {"", " "}, {"", "caf\xE9"}, {"add_obj", "c"}};
  samples[1].negatives = {{"", "d"}};
  const LoaderSettings settings = loader_settings("{batch_size: 3, shuffle: false, negatives: {count: 2}}");
  Loader loader = region_loader(samples, settings, {.texts = {{"negatives", {.optional = true}}}});
  std::set<Texts> seen;
  for (int epoch = 0; epoch < 30; ++epoch) {
    const TowerInput view = loader.next().texts.at("negatives");
    Texts texts = texts_of(view, 0);
    std::ranges::sort(texts);
    seen.insert(texts);
    EXPECT_EQ(texts_of(view, 1), (Texts{"d", ""}));
    EXPECT_EQ(texts_of(view, 2), (Texts{"", ""}));
    EXPECT_FALSE(view.mask[2].any().item<bool>());
  }
  EXPECT_EQ(seen, (std::set<Texts>{{"a", "b"}, {"a", "c"}, {"b", "c"}})) << "no negative may repeat, be blank or be invalid";
  Loader strict = region_loader(samples, loader_settings("{batch_size: 1, shuffle: false, negatives: {count: 1}}"),
                                {.texts = {{"negatives", {}}}});
  for (const char* key : {"0", "1", "0"}) EXPECT_EQ(strict.next().keys, Texts{key});
  EXPECT_EQ(strict.statistics().skipped, (std::map<std::string, std::int64_t>{{"no_negatives", 1}}));
}

TEST(NegativesView, DrawsOnlyTheListedKinds) {
  std::vector<Sample> samples = make_samples(2);
  samples[0].negatives = {{"swap_att", "a"}, {"add_obj", "b"}, {"swap_obj", "c"}, {"", "d"}};
  samples[1].negatives = {{"add_obj", "e"}};
  Loader loader = region_loader(
      samples, loader_settings("{batch_size: 1, shuffle: false, negatives: {count: 3, kinds: [swap_att, swap_obj]}}"),
      {.texts = {{"negatives", {}}}});
  for (int epoch = 0; epoch < 2; ++epoch) {
    Texts texts = texts_of(loader.next().texts.at("negatives"), 0);
    std::ranges::sort(texts);
    EXPECT_EQ(texts, (Texts{"", "a", "c"}));
  }
  EXPECT_EQ(loader.statistics().skipped, (std::map<std::string, std::int64_t>{{"no_negatives", 1}}));
}

class RegionFiles : public FolderTest {
 protected:
  RegionFiles() { write("pictures/a.png", test::encode(test::noise(20, 30, 1), ".png")); }
};

const char* const kMembers = R"("negatives": ["a dog", {"kind": "swap_obj", "caption": "a bird"}, 3, {"kind": "x"}], )"
                             R"("regions": [{"box": [1.5, 2, 10, 8.2], "phrase": "a cat", "negatives": ["a cow", 7]}, )"
                             R"({"phrase": "no box"}, {"box": [0, 0, 30, 20], "phrase": "all"}])";

void expect_members(const Sample& sample) {
  ASSERT_EQ(sample.negatives.size(), 2U);
  EXPECT_EQ(sample.negatives[0].caption, "a dog");
  EXPECT_EQ(sample.negatives[1].kind, "swap_obj");
  EXPECT_EQ(sample.negatives[1].caption, "a bird");
  ASSERT_EQ(sample.objects.size(), 2U);
  EXPECT_EQ(sample.objects[0].phrase, "a cat");
  EXPECT_EQ(sample.objects[0].box, (std::array<std::int64_t, 4>{2, 1, 7, 9})) << "the box must include every pixel that it touches";
  EXPECT_EQ(sample.objects[0].negatives, Texts{"a cow"});
  EXPECT_EQ(sample.objects[1].box, (std::array<std::int64_t, 4>{0, 0, 20, 30}));
  EXPECT_EQ(sample.bad_boxes, "");
}

TEST_F(RegionFiles, JsonLinesReadsRegionsByTheirKeys) {
  JsonLinesSettings settings;
  settings.path = {{path("data.jsonl")}};
  settings.images = path("pictures");
  write("data.jsonl", std::string(R"({"image": "a.png", "caption": "x", )") + kMembers + "}\n");
  expect_members(make_json_lines(settings)->get(0));
  settings.negatives_keys = settings.regions_keys = {"other"};
  EXPECT_TRUE(make_json_lines(settings)->get(0).negatives.empty());
  EXPECT_TRUE(make_json_lines(settings)->get(0).objects.empty());
}

TEST_F(RegionFiles, WebDatasetRegionsAreReadAndPackedAgain) {
  io::TarWriter tar(path("a.tar"));
  tar.add("k.png", test::encode(test::noise(20, 30, 1), ".png"));
  tar.add("k.json", std::string(R"({"caption": "x", )") + kMembers + "}");
  tar.finish();
  WebDatasetSettings settings;
  settings.path = {{path("a.tar")}};
  const auto source = indexed(make_webdataset(settings));
  expect_members(source->get(0));
  write_shards(*source, {.folder = path("packed"), .name = "train"});
  settings.path.items = {path("packed")};
  expect_members(indexed(make_webdataset(settings))->get(0));
}

TEST_F(RegionFiles, InvalidBoxesAreRecordedInTheSample) {
  JsonLinesSettings settings;
  settings.path = {{path("data.jsonl")}};
  settings.images = path("pictures");
  for (const auto& [box, shown] : std::map<std::string, std::string>{{"[5, 5, 2, 9]", "[5,5,2,9]"},
                                                                     {"[1, 2, 3]", "[1,2,3]"},
                                                                     {"[0, 0, 1e300, 4]", "[0,0,1e+300,4]"},
                                                                     {R"("none")", R"("none")"}}) {
    write("data.jsonl",
          concat(R"({"image": "a.png", "caption": "x", "regions": [{"box": [0, 0, 4, 4], "phrase": "p"}, {"box": )",
                 box, R"(, "phrase": "q"}]})", "\n"));
    const Sample sample = make_json_lines(settings)->get(0);
    EXPECT_EQ(sample.objects.size(), 1U);
    EXPECT_EQ(sample.bad_boxes,
              concat("regions[1].box is ", shown,
                     "; expected [left, top, right, bottom] in pixels, with left < right and top < bottom"));
  }
}

}  // namespace
}  // namespace tessera
