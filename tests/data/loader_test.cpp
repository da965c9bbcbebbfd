#include <map>
#include <set>
#include <thread>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/data/image/orientation.h"
#include "src/data/loading/evaluation_reader.h"
#include "tests/data/batches.h"
#include "tests/data/fake_source.h"
#include <tessera/data/image/transforms.h>

namespace tessera {
namespace {

Preprocessing small() {
  return {.image_size = 16};
}

LoaderSettings settings_with(std::int64_t batch_size, std::int64_t threads = 2) {
  return loader_settings(
      concat("{batch_size: ", batch_size, ", threads: ", threads, ", augmentation: {scale: [0.3, 1], flip: 0.5}}"));
}

Loader make(std::vector<Sample> samples, const LoaderSettings& settings, std::uint64_t seed = 1,
            const Needs& needs = {}) {
  return Loader(std::make_shared<MemorySource>(std::move(samples)), std::make_shared<ByteTokenizer>(), small(),
                settings, needs, seed);
}

// Returns a hundred samples; numbers 3, 17, 41, 58, 59 and 77 are corrupt in various ways.
std::vector<Sample> with_corrupt_ones() {
  std::vector<Sample> samples = make_samples(100);
  samples[3].encoded = "";
  samples[17].encoded = "<html>not found";
  const std::string jpeg = test::encode(test::noise(30, 30, 1), ".jpg");
  samples[41].encoded = jpeg.substr(0, jpeg.size() / 2);
  samples[58].captions = {};
  samples[59].captions = {" \n"};
  samples[77].captions = {"caf\xE9"};
  return samples;
}

Loader shard_of(std::vector<Sample> samples, const LoaderSettings& settings, const RankSlice& shard) {
  return Loader(std::make_shared<MemorySource>(std::move(samples)), std::make_shared<ByteTokenizer>(), small(),
                settings, {}, 1, shard);
}

std::vector<std::string> keys_of(Loader& loader, int batches) {
  std::vector<std::string> out;
  for (int i = 0; i < batches; ++i) {
    const Batch batch = loader.next();
    out.insert(out.end(), batch.keys.begin(), batch.keys.end());
  }
  return out;
}

// Each of 3 shards gets 10 of the 31 samples, which make three batches of 3. The tenth sample is left out.
TEST(Loader, ShardsShareAnEpochWithoutOverlap) {
  for (int epoch = 0; epoch < 2; ++epoch) {
    std::set<std::string> seen;
    for (int index = 0; index < 3; ++index) {
      Loader loader = shard_of(make_samples(31), settings_with(3), {index, 3});
      EXPECT_EQ(loader.batches_per_epoch(), 3);
      loader.seek({epoch, 0});
      for (const std::string& key : keys_of(loader, 3)) EXPECT_TRUE(seen.insert(key).second) << key << " came twice";
      EXPECT_EQ(loader.epoch(), epoch);
      EXPECT_EQ(loader.position().epoch, epoch + 1);
    }
    EXPECT_EQ(seen.size(), 27U);
  }
}

TEST(Loader, ShardsTogetherReturnTheBatchesOfOneProcess) {
  Loader whole = make(make_samples(40), settings_with(8));
  Loader first = shard_of(make_samples(40), settings_with(4), {0, 2}),
         second = shard_of(make_samples(40), settings_with(4), {1, 2});
  for (int step = 0; step < 12; ++step) {
    const auto all = keys_of(whole, 1);
    std::set<std::string> halves;
    for (Loader* half : {&first, &second})
      for (const std::string& key : keys_of(*half, 1)) halves.insert(key);
    EXPECT_EQ(halves, std::set<std::string>(all.begin(), all.end())) << step;
    EXPECT_EQ(first.position().cursor, whole.position().cursor);
    EXPECT_EQ(first.position().epoch, whole.position().epoch);
  }
}

TEST(Loader, TooFewSamplesForAllShardsAreRefused) {
  EXPECT_EQ(error_of([] {
              shard_of(make_samples(15), settings_with(4), {0, 4});
            }),
            "memory, 15 samples: fewer samples than one batch of 4 for each of 4 processes: set batch_size to 3 or "
            "less");
}

TEST(Loader, ABatchHoldsTheContentOfItsSamples) {
  LoaderSettings settings = settings_with(4);
  settings.shuffle = false;
  settings.caption_choice = "first";
  settings.augmentation = {.scale = {1.0, 1.0}, .ratio = {1.2, 1.2}};  // 1.2 = 24 / 20 is the aspect ratio of sample 0
  Loader loader = make(make_samples(9), settings);
  const Batch batch = loader.next();
  EXPECT_EQ(batch.keys, (std::vector<std::string>{"0", "1", "2", "3"}));
  EXPECT_EQ(batch.images.at("image").pixels.sizes(), (at::IntArrayRef{4, 3, 16, 16}));
  EXPECT_TRUE(
      at::equal(batch.images.at("image").pixels[0], to_tensor(resize(test::noise(20, 24, 0), 16, 16, "bicubic"))));
  EXPECT_TRUE(at::equal(batch.labels, at::tensor({0, 1, 2, 0}, at::kLong)));
  const TowerInput& text = batch.texts.at("caption");
  EXPECT_EQ(text.ids.sizes(), (at::IntArrayRef{4, 7})) << "cut to the longest text of the batch";
  EXPECT_EQ(text.ids[1][6].item<std::int64_t>(), '1');
  EXPECT_TRUE(at::equal(text.mask.sum(1), at::tensor({7, 7, 7, 7}, at::kLong)));
  EXPECT_TRUE(at::equal(text.lengths, text.mask.sum(1)));
  EXPECT_EQ(text.ids.masked_select(text.mask.logical_not()).abs().sum().item<std::int64_t>(), 0);
}

TEST(Loader, ABatchHoldsTheExtrasOfItsSamples) {
  LoaderSettings settings = settings_with(4);
  settings.shuffle = false;
  const auto label = [](const Sample& sample) {
    if (sample.key == "2") throw SampleError("no_label", "sample 2 has no label");
    return at::full({2}, sample.label, at::kLong);
  };
  Needs needs;
  needs.extras["label"] = {label, at::zeros({2}, at::kLong)};
  Loader loader = make(make_samples(9), settings, 1, needs);
  const Batch batch = loader.next();
  EXPECT_EQ(batch.keys, (std::vector<std::string>{"0", "1", "3", "4"}));
  EXPECT_TRUE(at::equal(batch.extras.at("label"), at::tensor({0, 0, 1, 1, 0, 0, 1, 1}, at::kLong).view({4, 2})));
  EXPECT_EQ(loader.statistics().skipped.at("no_label"), 1);
  EXPECT_TRUE(at::equal(slice(batch, 1, 2).extras.at("label"), batch.extras.at("label").narrow(0, 1, 2)));

  needs.extras["label"].example = at::zeros({}, at::kLong);
  Loader other = make(make_samples(9), settings, 1, needs);
  EXPECT_NE(error_of<c10::Error>([&] { other.next(); }).find("the objective's label is Long [2], but its example is Long []"),
            std::string::npos);
}

/// A tokenizer like SigLIP's, whose text tower was trained to read the padding.
class PaddingIsText : public ByteTokenizer {
 public:
  bool pad_is_text() const override { return true; }
};

TEST(Loader, PaddingThatCountsAsTextIsKeptAndNotMasked) {
  Needs needs;
  needs.texts["summary"].optional = true;
  std::vector<Sample> samples = make_samples(4);
  samples[1].summary = "short";
  LoaderSettings settings = settings_with(4, 1);
  settings.shuffle = false;
  Loader loader(std::make_shared<MemorySource>(samples), std::make_shared<PaddingIsText>(), small(), settings, needs, 1);
  const Batch batch = loader.next();
  const TowerInput& text = batch.texts.at("caption");
  EXPECT_EQ(text.ids.sizes(), at::IntArrayRef({4, 20}));
  EXPECT_TRUE(text.mask.all().item<bool>());
  EXPECT_TRUE(at::equal(text.lengths, at::full({4}, 20, at::kLong)));
  EXPECT_EQ(text.ids.slice(1, 8).abs().sum().item<std::int64_t>(), 0) << "captions have 7 or 8 bytes";
  EXPECT_TRUE(at::equal(batch.texts.at("summary").lengths, at::tensor({0, 20, 0, 0}, at::kLong))) << "a missing text must stay empty";
}

TEST(Loader, TextsAreCutToTheLongestOfTheBatchUnlessWholeTextsAreRequested) {
  std::vector<Sample> samples = make_samples(2);
  samples[0].captions = {"abc"};
  samples[1].captions = {"abcde"};
  samples[1].summary = "abcdefgh";
  const Needs needs{.images = {}, .texts = {{"caption", {}}, {"summary", {.optional = true}}}};
  LoaderSettings settings = settings_with(2);
  settings.shuffle = false;
  for (const bool whole : {false, true}) {
    LoaderTarget target;
    target.whole_texts = whole;
    Loader loader(std::make_shared<MemorySource>(samples), std::make_shared<ByteTokenizer>(), small(), settings, needs, 1, {},
                  target);
    const Batch batch = loader.next();
    const TowerInput &caption = batch.texts.at("caption"), &summary = batch.texts.at("summary");
    for (const TowerInput& text : {caption, summary}) {
      EXPECT_EQ(text.ids.sizes(), (at::IntArrayRef{2, whole ? 20 : 8}));
      EXPECT_EQ(text.mask.sizes(), text.ids.sizes());
      EXPECT_TRUE(at::equal(text.lengths, text.mask.sum(1)));
    }
    EXPECT_TRUE(at::equal(caption.lengths, at::tensor({3, 5}, at::kLong)));
    EXPECT_TRUE(at::equal(summary.lengths, at::tensor({0, 8}, at::kLong)));
  }
}

TEST(Loader, TheStreamIsTheSameForAnyNumberOfThreads) {
  std::vector<std::vector<Batch>> streams;
  for (std::int64_t threads : {1, 2, 5}) {
    Loader loader = make(with_corrupt_ones(), settings_with(7, threads));
    streams.emplace_back();
    for (int i = 0; i < 31; ++i) streams.back().push_back(loader.next());
  }
  for (std::size_t i = 0; i < streams[0].size(); ++i) {
    EXPECT_TRUE(same_batch(streams[0][i], streams[1][i])) << i;
    EXPECT_TRUE(same_batch(streams[0][i], streams[2][i])) << i;
  }
}

TEST(Loader, SeedsChangeOrderAndCrops) {
  Loader a = make(make_samples(20), settings_with(20), 1);
  Loader b = make(make_samples(20), settings_with(20), 2);
  EXPECT_NE(a.next().keys, b.next().keys);
  LoaderSettings in_order = settings_with(20);
  in_order.shuffle = false;
  Loader c = make(make_samples(20), in_order, 1);
  Loader d = make(make_samples(20), in_order, 2);
  EXPECT_FALSE(at::equal(c.next().images.at("image").pixels, d.next().images.at("image").pixels));
}

TEST(Loader, ResumesAtTheSameSampleAnywhere) {
  const auto loader = [](std::int64_t threads) { return make(with_corrupt_ones(), settings_with(7, threads)); };
  expect_resumes(loader, 40, 1, 3);
}

TEST(Loader, CorruptSamplesAreReplacedAndCountedByReason) {
  for (std::int64_t threads : {1, 4}) {
    Loader loader = make(with_corrupt_ones(), settings_with(47, threads));
    std::set<std::string> keys;
    for (int i = 0; i < 2; ++i)
      for (const std::string& key : loader.next().keys) keys.insert(key);
    EXPECT_EQ(keys.size(), 94U);  // all good samples
    for (const char* bad : {"3", "17", "41", "58", "59", "77"}) EXPECT_FALSE(keys.contains(bad));
    const LoaderStatistics statistics = loader.statistics();
    EXPECT_EQ(statistics.samples, 94);
    for (const auto& [reason, count] : std::map<std::string, std::int64_t>{
             {"no_image", 1}, {"bad_image", 1}, {"truncated", 1}, {"no_caption", 2}, {"not_utf8", 1}}) {
      // A bad sample after the last good one is found only when the next batch is read.
      EXPECT_LE(statistics.skipped.contains(reason) ? statistics.skipped.at(reason) : 0, count) << reason;
    }
    loader.next();
    std::int64_t total = 0;
    for (const auto& [reason, count] : loader.statistics().skipped) total += count;
    EXPECT_GE(total, 6);
  }
}

TEST(Loader, TooManyBadSamplesStopTheRunWithTheirCounts) {
  std::vector<Sample> samples = make_samples(300);
  for (std::size_t i = 0; i < samples.size(); i += 3) samples[i].encoded = "junk";
  LoaderSettings settings = settings_with(10);
  settings.shuffle = false;
  Loader loader = make(std::move(samples), settings);
  int batches = 0;
  const std::string error = error_of([&] {
    while (batches < 100) {
      loader.next();
      ++batches;
    }
  });
  EXPECT_EQ(error,
            "memory, 300 samples: 34 of the first 100 samples cannot be used (34 bad_image), more than max_bad_share "
            "0.1 allows (data.loader.max_bad_share: 0.5 allows more, tessera-data inspect counts all of them); "
            "the first: sample 0: "
            "expected a JPEG, PNG, WebP, GIF, BMP or TIFF file, but the bytes are text (\"junk\")");
  EXPECT_EQ(batches, 6);
  EXPECT_EQ(error_of([&] { loader.next(); }), error) << "later calls must report the same error";
}

TEST(Loader, ASourceWithoutANeededFieldIsRefusedOnConstruction) {
  std::vector<Sample> samples = make_samples(200);
  for (Sample& sample : samples) sample.captions.clear();
  EXPECT_EQ(
      error_of([&] { make(samples, settings_with(10)); }),
      "memory, 200 samples: none of the 32 samples checked has all that the objective needs: missing caption; "
      "found image and label; needed image and caption. Check the source's settings (names of its members or columns)");
  Needs unknown;
  unknown.images = {{"global", {}}};
  EXPECT_EQ(error_of([&] { make(make_samples(20), settings_with(10), 1, unknown); }),
            "the objective asks for the image view global, but the data pipeline makes only: image; "
            "add others to data.loader.views");
  EXPECT_EQ(error_of([&] { make(make_samples(9), settings_with(10)); }),
            "memory, 9 samples: fewer samples than one batch of 10: set batch_size to 9 or less");
}

TEST(Loader, AnEpochWithoutAFullBatchIsAnError) {
  std::vector<Sample> samples = make_samples(12);
  for (std::size_t i = 0; i < 5; ++i) samples[i].encoded = "junk";
  Loader loader = make(std::move(samples), settings_with(10));
  const std::string error = error_of([&] { loader.next(); });
  EXPECT_NE(error.find("readable samples, fewer than one batch of 10; skipped: "), std::string::npos) << error;
}

TEST(Loader, CanBeDestroyedAtAnyTime) {
  for (int batches = 0; batches < 4; ++batches) {
    Loader loader = make(make_samples(64), settings_with(8, 4));
    for (int i = 0; i < batches; ++i) loader.next();
  }
}

TEST(Loader, SummariesObjectsAndRegionsAreCollated) {
  std::vector<Sample> samples = make_samples(4);
  for (std::size_t i = 0; i < 4; ++i) {
    samples[i].summary = "sum " + std::to_string(i);
    samples[i].object_tags = "tags";
    samples[i].region_width = 3;
    samples[i].regions.assign(3 * (i + 1), static_cast<float>(i));
  }
  LoaderSettings settings = settings_with(4);
  settings.shuffle = false;
  Needs needs;
  needs.texts = {{"summary", {}}, {"objects", {}}};
  needs.images = {{"roi", {.regions = true}}};
  Loader loader = make(std::move(samples), settings, 1, needs);
  const Batch batch = loader.next();
  EXPECT_FALSE(batch.texts.contains("caption"));
  EXPECT_EQ(batch.texts.at("summary").ids[2][4].item<std::int64_t>(), '2');
  EXPECT_EQ(batch.images.size(), 1U);
  const TowerInput& roi = batch.images.at("roi");
  EXPECT_FALSE(roi.pixels.defined());
  EXPECT_TRUE(at::equal(roi.mask.sum(1), at::tensor({1, 2, 3, 4}, at::kLong)));
  EXPECT_EQ(roi.regions.sizes(), (at::IntArrayRef{4, 4, 3}));
  EXPECT_EQ(roi.regions[2][2][0].item<float>(), 2.0F);
  EXPECT_EQ(roi.regions[2][3][0].item<float>(), 0.0F);
}

TEST(Loader, ReportsWhichSamplesShareAnImageOrACaption) {
  std::vector<Sample> samples = make_samples(6);
  samples[4].encoded = samples[1].encoded;
  samples[5].captions[0] = samples[2].captions[0];
  // Samples 0 and 3 hold the same decoded pixels.
  samples[0].image = samples[3].image = test::noise(20, 24, 0);
  samples[0].encoded = samples[3].encoded = "";
  LoaderSettings settings = settings_with(6);
  settings.shuffle = false;
  settings.caption_choice = "first";
  Needs needs;
  EXPECT_FALSE(make(samples, settings, 1, needs).next().duplicates.image_group.defined());
  needs.duplicates = true;
  const Batch batch = make(samples, settings, 1, needs).next();
  ASSERT_EQ(batch.duplicates.image_group.scalar_type(), at::kLong);
  const auto equal_ones = [](const at::Tensor& ids) {
    std::set<std::pair<int, int>> out;
    for (int i = 0; i < 6; ++i)
      for (int j = i + 1; j < 6; ++j)
        if (ids[i].item<std::int64_t>() == ids[j].item<std::int64_t>()) out.insert({i, j});
    return out;
  };
  EXPECT_EQ(equal_ones(batch.duplicates.image_group), (std::set<std::pair<int, int>>{{0, 3}, {1, 4}}));
  EXPECT_EQ(equal_ones(batch.duplicates.caption_group), (std::set<std::pair<int, int>>{{2, 5}}));
  EXPECT_GE(batch.duplicates.image_group.min().item<std::int64_t>(), 0);
  samples[3].image.height = 24;
  samples[3].image.width = 20;
  EXPECT_EQ(equal_ones(make(samples, settings, 1, needs).next().duplicates.image_group),
            (std::set<std::pair<int, int>>{{1, 4}}));
  EXPECT_TRUE(at::equal(batch.to(at::kCPU).duplicates.caption_group, batch.duplicates.caption_group));
}

TEST(Loader, ASavedPositionBeyondTheDataIsRefused) {
  Loader loader = make(make_samples(20), settings_with(10));
  EXPECT_EQ(error_of([&] {
              loader.seek({1, 21});
            }),
            "the saved data position is sample 21 of epoch 1, but memory, 20 samples: the data has changed since; "
            "start a new run, or use the data it was saved with");
  loader.seek({1, 15});  // the remaining samples do not fill a batch
  EXPECT_EQ(loader.position().epoch, 2);
  EXPECT_EQ(loader.position().cursor, 0);
}

TEST(EvaluationReader, ReturnsAllSamplesInOrderAndSkipsCorruptOnes) {
  for (std::int64_t threads : {1, 3}) {
    EvaluationReader reader(std::make_shared<MemorySource>(with_corrupt_ones()), small(), 16, threads);
    std::vector<std::int64_t> indices;
    for (auto samples = reader.next(); !samples.empty(); samples = reader.next())
      for (const EvaluationSample& sample : samples) {
        indices.push_back(sample.index);
        EXPECT_TRUE(sample.sample.encoded.empty());
        EXPECT_TRUE(at::equal(sample.pixels, to_tensor(preprocess(sample.sample.image, small()))));
      }
    EXPECT_EQ(indices.size(), 97U);  // samples without captions are not skipped here
    EXPECT_TRUE(std::is_sorted(indices.begin(), indices.end()));
    EXPECT_EQ(reader.statistics().skipped,
              (std::map<std::string, std::int64_t>{{"bad_image", 1}, {"no_image", 1}, {"truncated", 1}}));
    EXPECT_TRUE(reader.next().empty());
  }
}

TEST(EvaluationReader, RespectsTheLimitAndChecksMasks) {
  std::vector<Sample> samples = make_samples(10);
  samples[0].mask.assign(20 * 24, 5);
  samples[1].mask.assign(7, 5);
  EvaluationReader reader(std::make_shared<MemorySource>(samples), small(), 4, 2, 3);
  const auto first = reader.next();
  ASSERT_EQ(first.size(), 2U);
  EXPECT_EQ(first[0].mask, std::vector<std::uint8_t>(256, 5));
  EXPECT_EQ(first[1].index, 2);
  EXPECT_TRUE(reader.next().empty());
  EXPECT_EQ(reader.statistics().skipped.at("bad_mask"), 1);
  for (Sample& sample : samples) sample.encoded = "junk";
  EvaluationReader bad(std::make_shared<MemorySource>(samples), small(), 4, 2);
  EXPECT_NE(error_of([&] {
              while (true)
                if (bad.next().empty()) break;
            }).find("no sample can be read (10 bad_image)"),
            std::string::npos);
}

TEST(EvaluationReader, ExifRotationTurnsTheImageWithItsMaskDepthAndBoxes) {
  EvaluationSample stored;
  stored.sample.encoded = with_orientation(test::encode(test::noise(2, 3, 1), ".png"), 6);
  stored.sample.mask = {1, 2, 3, 4, 5, 6};
  stored.sample.depth = {1, 2, 3, 4, 5, 6};
  stored.sample.objects = {{.box = {0, 1, 1, 2}}};
  EvaluationSample turned = stored;
  decode_image(stored, {});
  EXPECT_EQ(stored.sample.image.height, 2);
  decode_image(turned, {.exif_rotation = true});
  EXPECT_EQ(turned.sample.image.height, 3);
  EXPECT_EQ(turned.sample.mask, (std::vector<std::uint8_t>{4, 1, 5, 2, 6, 3}));
  EXPECT_EQ(turned.sample.depth, (std::vector<float>{4, 1, 5, 2, 6, 3}));
  EXPECT_EQ(turned.sample.objects[0].box, (std::array<std::int64_t, 4>{1, 1, 2, 1}));
}

// Tasks that read only texts accept samples whose image is missing or damaged.
TEST(EvaluationReader, DoesNotDecodeImagesThatTheTaskDoesNotNeed) {
  std::vector<Sample> samples = make_samples(3);
  samples[1].encoded = "junk";
  samples[2].encoded.clear();
  EvaluationReader reader(std::make_shared<MemorySource>(samples), small(), 4, 2, -1, EvaluationImages::as_read);
  std::vector<EvaluationSample> read = reader.next();
  ASSERT_EQ(read.size(), 3U);
  EXPECT_TRUE(reader.statistics().skipped.empty());
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(read[i].sample.encoded, samples[i].encoded);
    EXPECT_FALSE(read[i].pixels.defined());
  }
  prepare_image(read[0], small());
  EXPECT_TRUE(at::equal(read[0].pixels, to_tensor(preprocess(read[0].sample.image, small()))));
  EXPECT_THROW(prepare_image(read[1], small()), SampleError);
  EXPECT_THROW(prepare_image(read[2], small()), SampleError);
}

}  // namespace
}  // namespace tessera
