#include "src/data/image/image_views.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/data/image/orientation.h"
#include "tests/data/batches.h"
#include "tests/data/fake_source.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/test_data.h"
#include <tessera/data/image/transforms.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

std::string settings_error(const std::string& yaml) {
  return error_of([&] { loader_settings(yaml); });
}

constexpr const char* kDino = R"(
augmentation: {scale: [0.9, 1]}
views:
  global: {count: 2, scale: [0.4, 1], flip: 0.5, image_size: 24, color_jitter: {probability: 0.8}, blur: {probability: 1}}
  local: {count: 3, scale: [0.05, 0.4], flip: 0.5, image_size: [8, 12], grayscale: 0.2, solarize: {probability: 0.5}}
  wide: {scale: [1, 1], ratio: [1.5, 1.5]}
)";

Needs needs_of(const std::vector<std::string>& views) {
  Needs needs{{}, {}};
  for (const std::string& view : views) needs.images[view] = {};
  return needs;
}

Preprocessing of_size(std::int64_t size) {
  return {.image_size = size};
}

Sample jpeg_sample(const char* name) {
  Sample sample;
  sample.key = "a";
  sample.encoded = io::read_file(test_data(std::string("images/") + name));
  return sample;
}

TEST(ImageViews, EachViewHasItsSizeAndItsOwnRandomCrop) {
  const Needs needs = needs_of({"image", "global_0", "global_1", "local_2"});
  LoaderSettings settings = loader_settings(kDino);
  settings.batch_size = 4;
  Loader loader(std::make_shared<MemorySource>(make_samples(8)), nullptr, of_size(16), settings, needs, 1);
  const Batch batch = loader.next();
  EXPECT_EQ(batch.images.size(), 4U);
  EXPECT_EQ(batch.images.at("image").pixels.sizes(), (at::IntArrayRef{4, 3, 16, 16}));
  EXPECT_EQ(batch.images.at("global_0").pixels.sizes(), (at::IntArrayRef{4, 3, 24, 24}));
  EXPECT_EQ(batch.images.at("local_2").pixels.sizes(), (at::IntArrayRef{4, 3, 8, 12}));
  EXPECT_FALSE(at::equal(batch.images.at("global_0").pixels, batch.images.at("global_1").pixels));
}

// A view must be the same whichever other views the objective needs.
TEST(ImageViews, AViewDoesNotDependOnTheOthers) {
  const LoaderSettings settings = loader_settings(kDino);
  const Sample sample = jpeg_sample("small_420.jpg");
  const auto all = ImageViews(of_size(32), settings, needs_of({"local_1", "image", "global_0"}), 5).make(sample, 3, 2);
  LoaderSettings exact = settings;
  exact.dct_scaling = "off";
  for (const char* name : {"local_1", "image", "global_0"})
    EXPECT_EQ(
        ImageViews(of_size(32), exact, needs_of({name}), 5).make(sample, 3, 2).at(name),
        ImageViews(of_size(32), exact, needs_of({"local_1", "image", "global_0"}), 5).make(sample, 3, 2).at(name));
  const ImageViews views(of_size(32), settings, needs_of({"global_0"}), 5);
  EXPECT_NE(views.make(sample, 3, 2), views.make(sample, 3, 3)) << "a different epoch";
  EXPECT_NE(views.make(sample, 3, 2), views.make(sample, 4, 2)) << "a different sample";
  EXPECT_EQ(all.size(), 3U);
}

TEST(ImageViews, UnscaledCropsEqualCropsOfTheDecodedImage) {
  LoaderSettings settings = loader_settings("{dct_scaling: 'off', augmentation: {scale: [0.1, 0.6], flip: 0.5}}");
  const ImageViews views(of_size(32), settings, needs_of({"image"}), 5);
  Sample encoded = jpeg_sample("small_422_progressive.jpg"), decoded = encoded;
  decoded.image = decode_image(encoded.encoded);
  for (std::int64_t index = 0; index < 30; ++index)
    ASSERT_EQ(views.make(encoded, index, 0), views.make(decoded, index, 0)) << index;
}

// The crop must be the same in every epoch and must not depend on the other views.
TEST(ImageViews, AnEvaluationCropEqualsTheEvaluationTransform) {
  const LoaderSettings settings =
      loader_settings("{augmentation: {crop: evaluation}, views: {small: {crop: evaluation, image_size: 16}, cut: {}}}");
  Sample encoded = jpeg_sample("small_420.jpg"), decoded = encoded;
  decoded.image = decode_image(encoded.encoded);
  for (const char* mode : {"shortest", "longest", "squash"}) {
    Preprocessing preprocessing = of_size(32);
    preprocessing.resize_mode = mode;
    const auto seen_at = [&](std::int64_t size) {
      Preprocessing of_view = preprocessing;
      of_view.image_size = size;
      const at::Tensor pixels = to_tensor(preprocess(decoded.image, of_view));
      const auto* bytes = pixels.const_data_ptr<std::uint8_t>();
      return ViewImage{{bytes, bytes + pixels.numel()}, size};
    };
    const ImageViews views(preprocessing, settings, needs_of({"image", "small", "cut"}), 5);
    for (const Sample& sample : {encoded, decoded})
      for (const std::int64_t epoch : {0, 1}) {
        const auto made = views.make(sample, 3, epoch);
        EXPECT_EQ(made.at("image"), seen_at(32)) << mode;
        EXPECT_EQ(made.at("small"), seen_at(16)) << mode;
        EXPECT_NE(made.at("cut"), seen_at(32)) << mode;
      }
  }
}

TEST(ImageViews, AnEvaluationCropIsFlippedAndAugmentedIfSet) {
  const auto view_of = [](const std::string& yaml) {
    const ImageViews views(of_size(8), loader_settings(yaml), needs_of({"image"}), 5);
    const std::vector<std::uint8_t> bytes = views.make(jpeg_sample("small_420.jpg"), 3, 0).at("image").planes;
    return at::from_blob(const_cast<std::uint8_t*>(bytes.data()), {3, 8, 8}, at::kByte).clone();
  };
  const at::Tensor plain = view_of("{augmentation: {crop: evaluation}}");
  EXPECT_TRUE(at::equal(view_of("{augmentation: {crop: evaluation, flip: 1}}"), plain.flip(2)));
  const at::Tensor gray = view_of("{augmentation: {crop: evaluation, grayscale: 1}}");
  EXPECT_TRUE(at::equal(gray[0], gray[2]));
  EXPECT_FALSE(at::equal(plain[0], plain[2]));
}

TEST(ImageViews, ExifRotationTurnsTheImageAndItsBoxes) {
  Sample stored = jpeg_sample("small_420.jpg"), shown = stored;
  stored.encoded = with_orientation(stored.encoded, 6);
  Preprocessing preprocessing = of_size(32);
  preprocessing.exif_rotation = true;
  preprocessing.resize_mode = "squash";
  shown.image = decode_image(stored.encoded, kDefaultMaxPixels, preprocessing);
  Needs needs = needs_of({"image", "whole"});
  for (auto& [name, view] : needs.images) view.boxes = true;
  const ImageViews views(preprocessing, loader_settings("{dct_scaling: 'off', views: {whole: {crop: evaluation}}}"),
                         needs, 5);
  const Box box{10, 20, 30, 40};  // in the stored image of 117 x 203, which is turned to the right by a quarter
  for (std::int64_t index = 0; index < 10; ++index) {
    EXPECT_EQ(views.make(stored, index, 0), views.make(shown, index, 0));
    const auto seen = views.see(stored, {box}, index, 0),
               expected = views.see(shown, {{20, 117 - 10 - 30, 40, 30}}, index, 0);
    for (const char* name : {"image", "whole"})
      EXPECT_EQ(seen.at(name)[0].corners, expected.at(name)[0].corners) << name;
  }
}

TEST(ImageViews, UnknownViewsAndInvalidSettingsAreReported) {
  const LoaderSettings settings = loader_settings(kDino);
  EXPECT_EQ(error_of([&] { ImageViews(of_size(16), settings, needs_of({"local_3"}), 1); }),
            "the objective asks for the image view local_3, but the data pipeline makes only: image, global_0 to "
            "global_1, local_0 to local_2 and wide; add others to data.loader.views");
  EXPECT_EQ(settings_error("{views: {image: {flip: 1}}}"),
            "run.yaml:1: views: cannot redefine `image`: its settings are `augmentation`");
  EXPECT_EQ(settings_error("{views: {a: {scale: [0.5, 0.4]}}}"),
            "run.yaml:1: views.a.scale: expected [low, high], got [0.5, 0.4]");
  EXPECT_EQ(settings_error("{augmentation: {rand_augment: {magnitude: 31}}}"),
            "run.yaml:1: augmentation.rand_augment.magnitude: expected from 0 to 30, got 31");
}

TEST(ImageViews, AnImageAboveMaxPixelsIsRefused) {
  LoaderSettings settings = loader_settings("{max_pixels: 23750}");  // one pixel less than 203 x 117
  const ImageViews views(of_size(16), settings, needs_of({"image"}), 1);
  EXPECT_EQ(sample_error_of([&] { views.make(jpeg_sample("small_420.jpg"), 0, 0); }),
            "too_large: sample a: the image has 203 x 117 pixels, more than the limit of 23,750");
}

}  // namespace
}  // namespace tessera
