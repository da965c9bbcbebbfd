// Tests image features stored on disk and batches built from them.

#include <fstream>
#include <map>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/base/digest.h"
#include "src/data/features/feature_folder.h"
#include "tests/data/batches.h"
#include "tests/data/fake_source.h"
#include "tests/data/temporary_folder.h"
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kWidth = 3;

FeatureManifest make_manifest(const std::string& dtype = "float32") {
  FeatureManifest manifest;
  manifest.settings = R"({"model":{"width":3}})";
  manifest.weights = "0123";
  manifest.precision = "float32";
  manifest.data = "memory";
  manifest.dtype = dtype;
  return manifest;
}

// Image i has class token {i, i + 0.25, i + 0.5} and two patch tokens, which are the class token plus 10 and plus 20.
EncodedImages encoded_of(std::int64_t first, std::int64_t count) {
  EncodedImages out;
  out.class_token = at::arange(first, first + count).to(at::kFloat).unsqueeze(1) + at::arange(kWidth) * 0.25;
  out.tokens = at::stack({out.class_token + 10, out.class_token + 20}, 1);
  return out;
}

at::Tensor read_floats(const std::vector<std::uint8_t>& bytes, at::ScalarType type) {
  const auto count = static_cast<std::int64_t>(bytes.size() / c10::elementSize(type));
  return at::from_blob(const_cast<std::uint8_t*>(bytes.data()), {count}, type).clone().to(at::kFloat);
}

class FeatureFolderTest : public FolderTest {
 protected:
  std::string folder() const { return path("features"); }

  // Writes images 0 to 9 in shards of two; sample i has key "k<i>" and image fingerprint 100 + i.
  void write_ten(const std::string& dtype = "float32") const {
    FeatureWriter writer(folder(), make_manifest(dtype), 2 * 3 * kWidth * (dtype == "float32" ? 4 : 2));
    for (std::uint64_t i = 0; i < 10; i += 2)
      writer.add({concat("k", i), concat("k", i + 1)}, {100 + i, 101 + i}, encoded_of(static_cast<std::int64_t>(i), 2));
    writer.finish({{"bad_image", 2}});
  }
  // Replaces the first occurrence of `from` in the manifest.
  void edit_manifest(const std::string& from, const std::string& to) const {
    const std::string path = folder() + "/features.json";
    std::string text = io::read_file(path);
    const std::size_t place = text.find(from);
    ASSERT_NE(place, std::string::npos) << from << "\nin\n" << text;
    io::write_file(path, text.replace(place, from.size(), to));
  }
  std::string opening_error() const {
    return error_of([&] { FeatureFolder opened(folder()); });
  }
  std::string shard(std::int64_t number) const { return concat(folder(), "/features-0000", number, ".safetensors"); }
};

TEST_F(FeatureFolderTest, ReadsBackTheWrittenFeatures) {
  for (const char* dtype : {"float32", "bfloat16", "float16"}) {
    write_ten(dtype);
    EXPECT_TRUE(fs::exists(shard(4)) && !fs::exists(shard(5)));
    const FeatureFolder features(folder());
    const FeatureManifest& manifest = features.manifest();
    EXPECT_EQ(manifest.samples, 10);
    EXPECT_EQ(manifest.left_out.at("bad_image"), 2);
    EXPECT_EQ(manifest.weights, "0123");
    ASSERT_EQ(manifest.tensors.size(), 2u);
    EXPECT_EQ(manifest.tensors[0], (FeatureTensor{"class_token", {kWidth}}));
    EXPECT_EQ(manifest.tensors[1], (FeatureTensor{"tokens", {2, kWidth}}));
    for (std::uint64_t i = 0; i < 10; ++i) {
      const at::Tensor row = read_floats(features.read(concat("k", i), 100 + i), manifest.scalar_type());
      const EncodedImages written = encoded_of(static_cast<std::int64_t>(i), 1);
      EXPECT_TRUE(at::equal(row, at::cat({written.class_token.flatten(), written.tokens.flatten()}))) << dtype << i;
    }
  }
}

TEST_F(FeatureFolderTest, DistinguishesAMissingSampleFromAChangedImage) {
  write_ten();
  const FeatureFolder features(folder());
  const auto error = [&](const std::string& key, std::uint64_t image) {
    return sample_error_of([&] { features.read(key, image); });
  };
  EXPECT_EQ(error("k10", 110), "no_features: sample k10: " + folder() + " holds no features for it");
  EXPECT_EQ(error("k3", 104), "other_picture: sample k3: its image is not the one for which " + folder() + " holds features");
  EXPECT_EQ(error("k3", 103), "no error");
}

TEST_F(FeatureFolderTest, KeysMayRepeatBeEmptyOrHoldAnyBytes) {
  const std::vector<std::string> keys = {"a", "", std::string("a\0b", 3), "a", "\xff"};
  FeatureWriter writer(folder(), make_manifest());
  writer.add(keys, {0, 1, 2, 3, 4}, encoded_of(0, 5));
  writer.finish({});
  const FeatureFolder features(folder());
  for (std::size_t i = 0; i < keys.size(); ++i)
    EXPECT_EQ(read_floats(features.read(keys[i], i), at::kFloat)[0].item<float>(), static_cast<float>(i));
}

// A killed writer leaves shards but no manifest, even if there was a manifest before.
TEST_F(FeatureFolderTest, AnUnfinishedFolderIsRefused) {
  const std::string nothing =
      folder() +
      ": holds no features, or not all of them (features.json is written last): write them with "
      "trainer --write-features";
  EXPECT_EQ(opening_error(), nothing);
  write_ten();
  FeatureFolder whole(folder());
  {
    FeatureWriter writer(folder(), make_manifest(), 1);
    writer.add({"k0"}, {100}, encoded_of(7, 1));
    EXPECT_TRUE(fs::exists(shard(0)));
    EXPECT_FALSE(fs::exists(shard(1))) << "the shards of the earlier writer must be removed";
  }
  EXPECT_EQ(opening_error(), nothing);
}

TEST_F(FeatureFolderTest, DamageIsReportedInOneLine) {
  const std::string again = "; write the features again with trainer --write-features";
  write_ten();
  fs::resize_file(shard(1), fs::file_size(shard(1)) - 4);
  EXPECT_EQ(opening_error(),
            concat(shard(1), ": is ", fs::file_size(shard(1)), " bytes long, but the manifest says ",
                   fs::file_size(shard(1)) + 4, ": the shard is damaged", again));
  fs::remove(shard(1));
  EXPECT_EQ(opening_error(), shard(1) + ": cannot read: No such file or directory" + again);

  write_ten();
  std::string bytes = io::read_file(shard(2));
  char& last = bytes[bytes.size() - 1 - std::string("k4k5").size()];  // a byte of the last sample's tokens
  last = static_cast<char>(last ^ 1);
  io::write_file(shard(2), bytes);
  const FeatureFolder features(folder());
  EXPECT_EQ(features.read("k4", 104).size(), 3 * kWidth * sizeof(float));
  EXPECT_EQ(error_of([&] { features.read("k5", 105); }),
            shard(2) + ": the features of sample k5 do not match their checksum: the shard is damaged" + again);

  bytes[8] = 'x';  // damages the header
  io::write_file(shard(2), bytes);
  EXPECT_EQ(opening_error(), shard(2) + ": not a safetensors file: its header is not valid JSON" + again);
}

TEST_F(FeatureFolderTest, TensorsThatDifferFromTheManifestAreReported) {
  const auto error_with = [&](const std::string& from, const std::string& to) {
    write_ten();
    edit_manifest(from, to);
    return opening_error();
  };
  const auto line = [&](const std::string& tensor) {
    return concat(shard(0), ": has no tensor ", tensor,
                  " as the manifest describes it: the shard is damaged; write the features again with trainer "
                  "--write-features");
  };
  EXPECT_EQ(error_with("\"dtype\": \"float32\"", "\"dtype\": \"float16\""), line("class_token"));
  EXPECT_EQ(error_with("\"class_token\"", "\"attention\""), line("attention"));
  EXPECT_EQ(error_with("\"tokens\"", "\"to\\u0007kens\""), line("to\\u0007kens"));
  EXPECT_EQ(error_with("[\n    2,", "[\n    3,"), line("tokens"));
  // Adds one sample to the count of one shard and removes one from the next.
  write_ten();
  edit_manifest("\"samples\": 2", "\"samples\": 3");
  edit_manifest("\"samples\": 2", "\"samples\": 1");
  EXPECT_EQ(opening_error(), line("pictures"));
}

TEST_F(FeatureFolderTest, AnInvalidManifestIsReportedInOneLine) {
  const std::string nested = std::string(200'000, '[') + std::string(200'000, ']');
  const std::vector<std::pair<std::string, std::string>> edits = {
      {"\"dtype\": \"float32\"", "\"dtype\": \"float64\""},
      {"\"samples\": 10", "\"samples\": \"many\""},
      {"\"samples\": 10", "\"samples\": 11"},
      {"\"samples\": 10", "\"samples\": 1e300"},
      {"\"samples\": 2", "\"samples\": -2"},
      {"\"bytes\": ", "\"bytes\": 9999999999999999999"},
      {"features-00000", "../features-00000"},
      {"features-00000", "features-0\\n0000"},
      {"[\n    2,", "[\n    -2,"},
      {"[\n    2,", "[\n    4294967296, 4294967296,"},
      {"{\n   \"width\": 3\n  }", nested},
      {"{\n  \"model\"", "[{\n  \"model\""},
      {"\"weights\"", "\"wights\""},
  };
  for (const auto& [from, to] : edits) {
    write_ten();
    edit_manifest(from, to);
    EXPECT_EQ(opening_error(),
              folder() +
                  "/features.json: is not a manifest of features, or is damaged; write the features again with "
                  "trainer --write-features")
        << from << " to " << to.substr(0, 80);
  }
  write_ten();
  edit_manifest("\"format\": 1", "\"format\": 2");
  EXPECT_EQ(opening_error(),
            folder() +
                "/features.json: has a format that this version cannot read; write the features again with "
                "trainer --write-features");
}

TEST_F(FeatureFolderTest, AValueThatOverflowsTheTypeIsReportedWithItsSample) {
  EncodedImages encoded;
  encoded.class_token = at::tensor({1.0, 1e6}, at::kFloat).unsqueeze(1);
  FeatureWriter narrow(folder(), make_manifest("float16")), wide(path("wide"), make_manifest("bfloat16"));
  EXPECT_EQ(error_of([&] {
              narrow.add({"good", "large"}, {1, 2}, encoded);
            }),
            "sample large: its features from the image encoder are not finite as float16: set data.features.dtype to "
            "bfloat16 or float32");
  wide.add({"good", "large"}, {1, 2}, encoded);
}

// Tests a loader that reads stored features.
class FeatureLoading : public FeatureFolderTest {
 protected:
  static LoaderSettings fixed(std::int64_t batch_size) {
    return loader_settings(
        concat("{batch_size: ", batch_size, ", shuffle: false, augmentation: {crop: evaluation}, max_bad_share: 1}"));
  }
  std::shared_ptr<const FeatureFolder> encode_images(const std::vector<Sample>& samples) const {
    FeatureWriter writer(folder(), make_manifest());
    for (std::size_t i = 0; i < samples.size(); ++i)
      writer.add({samples[i].key}, {fingerprint(samples[i].encoded)}, encoded_of(static_cast<std::int64_t>(i), 1));
    writer.finish({});
    return std::make_shared<const FeatureFolder>(folder());
  }
  static std::unique_ptr<Loader> loader(std::vector<Sample> samples, const LoaderSettings& settings, const Needs& needs,
                                        const std::shared_ptr<const FeatureFolder>& features) {
    LoaderTarget target;
    target.features = features;
    return std::make_unique<Loader>(std::make_shared<MemorySource>(std::move(samples)),
                                    std::make_shared<ByteTokenizer>(), Preprocessing(), settings, needs, 1,
                                    RankSlice{}, target);
  }
};

TEST_F(FeatureLoading, FeaturesReplaceTheImages) {
  const auto all = loader(make_samples(8), fixed(4), {}, encode_images(make_samples(8)));
  for (std::int64_t first : {0, 4}) {
    const Batch batch = all->next();
    const TowerInput& view = batch.images.at("image");
    EXPECT_FALSE(view.pixels.defined());
    EXPECT_FALSE(view.mask.defined());
    EXPECT_TRUE(at::equal(view.encoded.class_token, encoded_of(first, 4).class_token));
    EXPECT_TRUE(at::equal(view.encoded.tokens, encoded_of(first, 4).tokens));
    EXPECT_FALSE(view.encoded.attention.defined());
    EXPECT_TRUE(batch.texts.at("caption").ids.defined());
  }
}

TEST_F(FeatureLoading, SamplesWithoutFeaturesAndChangedImagesAreSkippedAndCounted) {
  std::vector<Sample> some = make_samples(8), samples = make_samples(8);
  some.erase(some.begin() + 2);
  samples[5].encoded = samples[6].encoded;
  const auto features = encode_images(some);
  const auto batches = loader(samples, fixed(6), {}, features);
  EXPECT_EQ(batches->next().keys, (std::vector<std::string>{"0", "1", "3", "4", "6", "7"}));
  EXPECT_EQ(batches->statistics().skipped,
            (std::map<std::string, std::int64_t>{{"no_features", 1}, {"other_picture", 1}}));
}

TEST_F(FeatureLoading, AMissingOptionalImageIsAMaskedRow) {
  std::vector<Sample> samples = make_samples(4);
  const auto features = encode_images(samples);
  samples[1].encoded.clear();
  Needs needs;
  needs.images["image"].optional = true;
  const TowerInput view = loader(samples, fixed(4), needs, features)->next().images.at("image");
  EXPECT_TRUE(at::equal(view.mask, at::tensor({1, 0, 1, 1}).to(at::kBool).unsqueeze(1)));
  EXPECT_TRUE(at::equal(view.encoded.tokens[1], at::zeros({2, kWidth})));
  EXPECT_TRUE(at::equal(view.encoded.tokens[2], encoded_of(2, 1).tokens[0]));
}

TEST_F(FeatureLoading, FeaturesOfOtherDataAreReportedAtTheStart) {
  const auto features = encode_images(make_samples(4));
  std::vector<Sample> others = make_samples(8);
  for (Sample& sample : others) sample.key += "b";
  EXPECT_EQ(
      error_of([&] { loader(others, fixed(4), {}, features); }),
      "data.features: " + folder() +
          " was written for other images (memory): it holds no features of the samples checked of memory, 8 "
          "samples; write them again with trainer --write-features");
}

TEST_F(FeatureLoading, RandomViewsAndOtherSizesAreRefused) {
  const auto features = encode_images(make_samples(4));
  const auto error = [&](const LoaderSettings& settings, const Needs& needs = {}) {
    return error_of([&] { loader(make_samples(4), settings, needs, features); });
  };
  EXPECT_EQ(error(fixed(4)), "no error");
  LoaderSettings settings = fixed(4);
  settings.augmentation.crop = "random";
  EXPECT_EQ(error(settings),
            "data.features: the image view image is a random crop, but features are of whole images: set "
            "data.loader.augmentation to {crop: evaluation}");
  settings = fixed(4);
  settings.augmentation.flip = 0.5;
  EXPECT_EQ(error(settings),
            "data.features: the image view image is augmented at random, but features are not: set "
            "data.loader.augmentation to {crop: evaluation}");
  settings = fixed(4);
  settings.views["local"].crop = "evaluation";
  settings.views["local"].image_size = 64;
  Needs needs;
  needs.images["local"] = {};
  EXPECT_EQ(error(settings, needs),
            "data.features: the image view local is 64 x 64 pixels, but features are of 224 x 224: set "
            "its settings in data.loader.views to {crop: evaluation}");
}

}  // namespace
}  // namespace tessera
