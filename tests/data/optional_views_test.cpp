// Tests views that a sample may lack (ViewNeeds::optional): texts, images and region features.

#include <map>
#include <set>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/data/loading/sample_transform.h"
#include "src/data/sources/mixture.h"
#include "src/data/sources/webdataset/webdataset.h"
#include "src/io/tar.h"
#include "tests/data/batches.h"
#include "tests/data/fake_source.h"
#include "tests/data/temporary_folder.h"

namespace tessera {
namespace {

using Counts = std::map<std::string, std::int64_t>;
using Keys = std::vector<std::string>;

const ViewNeeds kOptional{.optional = true};
const ViewNeeds kRegions{.regions = true};
const ViewNeeds kOptionalRegions{.regions = true, .optional = true};

// Returns samples that all have a summary, object tags, and the features of two regions (three numbers per region).
std::vector<Sample> full_samples(std::int64_t count) {
  std::vector<Sample> samples = make_samples(count);
  for (Sample& sample : samples) {
    sample.summary = "sum " + sample.key;
    sample.object_tags = "tags";
    sample.regions = {1, 2, 3, 4, 5, 6};
    sample.region_width = 3;
  }
  return samples;
}

Loader in_order(const std::shared_ptr<const Source>& source, const Needs& needs, std::int64_t batch_size) {
  const LoaderSettings settings =
      loader_settings(concat("{batch_size: ", batch_size, ", shuffle: false, max_bad_share: 1}"));
  return Loader(source, std::make_shared<ByteTokenizer>(), {.image_size = 8}, settings, needs, 1);
}

Loader in_order(std::vector<Sample> samples, const Needs& needs, std::int64_t batch_size) {
  return in_order(std::make_shared<MemorySource>(std::move(samples)), needs, batch_size);
}

at::Tensor bools(const std::vector<bool>& values) {
  at::Tensor out = at::zeros({std::ssize(values)}, at::kBool);
  for (std::size_t i = 0; i < values.size(); ++i) out[static_cast<std::int64_t>(i)] = static_cast<bool>(values[i]);
  return out;
}

TEST(OptionalViews, AMissingTextIsARowOfPadding) {
  std::vector<Sample> samples = full_samples(4);
  samples[1].summary = "";
  samples[2].summary = " \n";
  Loader loader = in_order(samples, {.texts = {{"caption", {}}, {"summary", kOptional}}}, 4);
  const Batch batch = loader.next();
  EXPECT_EQ(batch.keys, (Keys{"0", "1", "2", "3"}));
  const TowerInput& summary = batch.texts.at("summary");
  EXPECT_TRUE(at::equal(summary.mask.any(1), bools({true, false, false, true})));
  EXPECT_EQ(summary.ids.slice(0, 1, 3).abs().sum().item<std::int64_t>(), 0) << "the tokenizer's padding";
  EXPECT_EQ(summary.ids[3][4].item<std::int64_t>(), '3');
  EXPECT_TRUE(at::equal(batch.texts.at("caption").mask.any(1), bools({true, true, true, true})));
  EXPECT_TRUE(loader.statistics().skipped.empty());
}

TEST(OptionalViews, AMissingImageIsAMaskedRow) {
  std::vector<Sample> samples = full_samples(4);
  samples[0].encoded = "";
  Loader loader = in_order(samples, {.images = {{"image", kOptional}}, .texts = {{"caption", {}}}}, 4);
  const Batch batch = loader.next();
  EXPECT_EQ(batch.keys, (Keys{"0", "1", "2", "3"}));
  const TowerInput& image = batch.images.at("image");
  EXPECT_EQ(image.mask.sizes(), (at::IntArrayRef{4, 1}));
  EXPECT_TRUE(at::equal(image.mask.squeeze(1), bools({false, true, true, true})));
  EXPECT_EQ(image.pixels[0].sum().item<std::int64_t>(), 0);
  EXPECT_TRUE(loader.statistics().skipped.empty());
}

TEST(OptionalViews, MissingRegionsAreAMaskedRow) {
  std::vector<Sample> samples = full_samples(3);
  samples[1].regions.clear();
  Loader loader = in_order(samples, {.images = {{"image", {}}, {"roi", kOptionalRegions}}}, 3);
  const Batch batch = loader.next();
  EXPECT_EQ(batch.keys, (Keys{"0", "1", "2"}));
  EXPECT_FALSE(batch.images.at("image").mask.defined()) << "no image is missing";
  const TowerInput& roi = batch.images.at("roi");
  EXPECT_EQ(roi.regions.sizes(), (at::IntArrayRef{3, 2, 3}));
  EXPECT_TRUE(at::equal(roi.mask.any(1), bools({true, false, true})));
  EXPECT_EQ(roi.regions[1].abs().sum().item<float>(), 0.0F);
  EXPECT_EQ(roi.regions[2][1][2].item<float>(), 6.0F);
}

TEST(OptionalViews, OnlyTheFirstRegionsAreUsed) {
  std::vector<Sample> samples = full_samples(3);
  samples[0].regions = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  samples[2].regions = {1, 2, 3};
  const LoaderSettings settings = loader_settings("{batch_size: 3, shuffle: false, max_regions: 2}");
  Loader loader(std::make_shared<MemorySource>(samples), nullptr, {}, settings,
                {.images = {{"roi", kOptionalRegions}}, .texts = {}}, 1);
  const TowerInput roi = loader.next().images.at("roi");
  const at::Tensor two = at::tensor({1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F}).view({2, 3});
  EXPECT_TRUE(at::equal(roi.regions, at::stack({two, two, at::cat({two[0], at::zeros({3})}).view({2, 3})})));
  EXPECT_TRUE(at::equal(roi.mask, bools({true, true, true, true, true, false}).view({3, 2})));
}

TEST(OptionalViews, ABatchWithoutRegionsHasRegionsOfWidthZero) {
  Loader loader = in_order(make_samples(3), {.images = {{"image", {}}, {"roi", kOptionalRegions}}}, 3);
  const TowerInput roi = loader.next().images.at("roi");
  EXPECT_EQ(roi.regions.sizes(), (at::IntArrayRef{3, 1, 0}));
  EXPECT_EQ(roi.mask.sizes(), (at::IntArrayRef{3, 1}));
  EXPECT_FALSE(roi.mask.any().item<bool>());
}

TEST(OptionalViews, ASampleWithoutARequiredViewIsSkippedAndCounted) {
  std::vector<Sample> samples = full_samples(9);
  samples[0].summary = samples[3].summary = "";
  samples[1].encoded = samples[3].encoded = "";
  samples[2].regions.clear();
  const Needs all{.images = {{"image", {}}, {"roi", kRegions}}, .texts = {{"caption", kOptional}, {"summary", {}}}};
  samples[4].captions.clear();
  Loader loader = in_order(samples, all, 5);
  EXPECT_EQ(loader.next().keys, (Keys{"4", "5", "6", "7", "8"}));
  EXPECT_EQ(loader.statistics().skipped, (Counts{{"no_summary", 2}, {"no_image", 1}, {"no_regions", 1}}));
}

// If a damaged view counted as absent, a run would silently train without some of its data.
TEST(OptionalViews, ASampleWithADamagedOptionalViewIsSkippedAndCounted) {
  std::vector<Sample> samples = full_samples(5);
  samples[0].summary = "caf\xE9";
  samples[1].encoded = "junk";
  const Needs needs{.images = {{"image", kOptional}}, .texts = {{"caption", {}}, {"summary", kOptional}}};
  Loader loader = in_order(samples, needs, 3);
  EXPECT_EQ(loader.next().keys, (Keys{"2", "3", "4"}));
  EXPECT_EQ(loader.statistics().skipped, (Counts{{"not_utf8", 1}, {"bad_image", 1}}));
}

TEST(OptionalViews, RegionsOfTheWrongWidthCountAsDamage) {
  std::vector<Sample> samples = full_samples(5);
  samples[0].region_width = 2;
  samples[2].regions = {1, 2};
  samples[2].region_width = 1;
  const LoaderSettings settings = loader_settings("{batch_size: 3, shuffle: false, max_bad_share: 1}");
  const Needs needs{.images = {{"roi", kOptionalRegions}}, .texts = {}};
  const auto source = std::make_shared<MemorySource>(samples);
  Loader loader(source, nullptr, {}, settings, needs, 1, {}, {.region_width = 3});
  const Batch batch = loader.next();
  EXPECT_EQ(batch.keys, (Keys{"1", "3", "4"}));
  EXPECT_EQ(batch.images.at("roi").regions.sizes(), (at::IntArrayRef{3, 2, 3}));
  EXPECT_EQ(loader.statistics().skipped, (Counts{{"region_width", 2}}));
  const SampleTransform transform(nullptr, {}, settings, needs, 1, {.region_width = 3});
  EXPECT_EQ(transform.prepare(samples[0], {}).bad_text, "sample 0: its region features are 2 wide, but the model takes 3");
}

TEST(OptionalViews, ASourceMayLackAllOptionalViewsButNoRequiredOne) {
  const Needs needs{.images = {{"image", {}}, {"roi", kOptionalRegions}},
                    .texts = {{"caption", {}}, {"summary", kOptional}}};
  EXPECT_EQ(in_order(make_samples(8), needs, 4).next().size(), 4);
  std::vector<Sample> samples = make_samples(8);
  for (Sample& sample : samples) sample.captions.clear();
  const std::string error = error_of([&] { in_order(samples, needs, 4); });
  EXPECT_NE(error.find("missing caption; found image and label; needed image and caption."), std::string::npos)
      << error;
}

TEST(OptionalViews, CompleteSamplesGiveTheSameBatchesAsRequiredViews) {
  const std::vector<Sample> samples = full_samples(6);
  const Needs required{.images = {{"image", {}}, {"roi", kRegions}}, .texts = {{"caption", {}}, {"summary", {}}}};
  const Needs optional{.images = {{"image", kOptional}, {"roi", kOptionalRegions}},
                       .texts = {{"caption", kOptional}, {"summary", kOptional}}};
  const Batch one = in_order(samples, required, 6).next();
  Batch other = in_order(samples, optional, 6).next();
  EXPECT_TRUE(other.images.at("image").mask.all().item<bool>());
  other.images.at("image").mask = at::Tensor();
  EXPECT_TRUE(same_batch(one, other));
}

TEST(OptionalViews, SamplesThatLackAViewAreNotDuplicates) {
  std::vector<Sample> samples = full_samples(6);
  samples[0].encoded = samples[1].encoded = "";
  samples[2].captions.clear();
  samples[3].captions.clear();
  samples[5].encoded = samples[4].encoded;
  const Needs needs{
      .images = {{"image", kOptional}}, .texts = {{"caption", kOptional}, {"summary", {}}}, .duplicates = true};
  const DuplicateGroups groups = in_order(samples, needs, 6).next().duplicates;
  const auto different = [](const at::Tensor& group) {
    std::set<std::int64_t> out;
    for (std::int64_t i = 0; i < group.numel(); ++i) out.insert(group[i].item<std::int64_t>());
    return out.size();
  };
  EXPECT_EQ(different(groups.image_group), 5U) << "4 and 5 have the same image";
  EXPECT_EQ(different(groups.caption_group), 6U);
}

TEST(OptionalViews, DuplicateImagesAreFoundEvenIfOnlyRegionsAreUsed) {
  std::vector<Sample> samples = full_samples(3);
  samples[2].encoded = samples[0].encoded;
  const Needs needs{.images = {{"roi", kRegions}}, .duplicates = true};
  const at::Tensor group = in_order(samples, needs, 3).next().duplicates.image_group;
  EXPECT_NE(group[0].item<std::int64_t>(), group[1].item<std::int64_t>());
  EXPECT_EQ(group[0].item<std::int64_t>(), group[2].item<std::int64_t>());
}

TEST(OptionalViews, TheErrorForAnUnknownTextListsTheKnownOnes) {
  EXPECT_EQ(error_of([] {
              in_order(full_samples(2), {.texts = {{"title", kOptional}}}, 2);
            }),
            "the objective asks for the text title, but the data pipeline knows only: caption, captions, summary, objects, negatives, phrases "
            "and phrase_negatives");
}

using OptionalImages = FolderTest;

// Samples `a`, `c` and `d` have an image; `b` has none.
TEST_F(OptionalImages, ASampleOfATarMayLackItsImage) {
  io::TarWriter tar(path("a.tar"));
  for (const std::string key : {"a", "b", "c", "d"}) {
    if (key != "b") tar.add(key + ".png", test::encode(test::noise(8, 9, 1), ".png"));
    tar.add(key + ".txt", "caption " + key);
  }
  tar.finish();
  WebDatasetSettings settings;
  settings.path = {{path("a.tar")}};
  settings.index_cache = "off";
  const std::shared_ptr<const Source> source = make_webdataset(settings);

  const Batch batch = in_order(source, {.images = {{"image", kOptional}}}, 4).next();
  EXPECT_EQ(batch.keys, (Keys{"a", "b", "c", "d"}));
  EXPECT_TRUE(at::equal(batch.images.at("image").mask.squeeze(1), bools({true, false, true, true})));

  std::vector<Mixture::Component> components = {{"web", indexed(source)}};
  const auto mixture = std::make_shared<Mixture>(MixtureMode::concat, components);
  for (const auto& [each, prefix] : {std::pair<std::shared_ptr<const Source>, std::string>{source, ""},
                                     std::pair<std::shared_ptr<const Source>, std::string>{mixture, "web: "}}) {
    SampleTransform transform(nullptr, {}, {}, {.texts = {}}, 1);
    const PreparedSample sample = transform.prepare(indexed(*each).get(1), {});
    EXPECT_EQ(sample.bad_reason, "no_image");
    EXPECT_EQ(sample.bad_text,
              prefix + path("a.tar") +
                  ": sample b: has no image; expected one of the members jpg, jpeg, png, webp, gif, bmp, tif, tiff, "
                  "jpe, jfif, jfi, jif, pjpeg, pjp and apng");
  }
}

}  // namespace
}  // namespace tessera
